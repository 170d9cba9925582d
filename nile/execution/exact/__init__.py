"""Exact answers over finite inputs and through pipelines.  Imports `nile.exact` and the modules of `nile.execution`."""
