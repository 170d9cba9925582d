"""The window join of two streams under a budget.  Imports `common` and `opponents`."""
