"""Answers that grow, over what is kept.  Imports `nile.execution.approximate`."""
