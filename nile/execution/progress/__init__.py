"""Growing answers over everything kept.  Imports `nile.operators.history` and `nile.execution.approximate`."""
