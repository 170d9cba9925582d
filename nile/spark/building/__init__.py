"""From the lake to the same store as if all its tuples had been pushed.  Imports `nile.durable`."""
