"""Standing selections under a budget.  Imports `common`."""
