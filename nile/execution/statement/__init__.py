"""Running statements: SQL, the builder, EXPLAIN.  Imports every other room of `nile.execution`."""
