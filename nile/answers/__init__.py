"""What a query returns, and queries as Python objects.  Imports `nile.report`, `nile.operators` and what lies below."""
