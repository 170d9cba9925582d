"""The window join of n streams under a budget.  Imports `common` and `join`."""
