"""Exact answers over whole inputs and through pipelines.  Imports `nile.exact` and the room above it in the folder."""
