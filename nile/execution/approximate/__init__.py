"""Answers WITH PREFERENCE, under a BUDGET or to an ERROR.  Imports `nile.execution.exact`."""
