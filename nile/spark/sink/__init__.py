"""A sink for Structured Streaming, exactly once into a store.  Imports `nile.engine`."""
