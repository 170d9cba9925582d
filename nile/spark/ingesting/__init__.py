"""From any batch input of Spark to a stream of the lake, every row accounted for.  Imports `nile.spark`."""
