"""Bound queries, the Python objects that build them, and the answers they return.

Imports `nile.report`, `nile.operators` and what lies below."""
