"""Bound queries, the Python objects that ask them, and what they return.  Imports `nile.report`, `nile.operators`."""
