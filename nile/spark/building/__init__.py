"""From the lake to the store that pushing all its tuples would have made.  Imports `nile.durable`."""
