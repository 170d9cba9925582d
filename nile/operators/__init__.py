"""The operators of approximate queries, each in a room of its own; what they share is in `common`.

Imports `nile.exact`, `nile.streams` and what lies below.
"""
