"""The operators of approximate queries, each in a room of its own; `common` holds what they share.

Imports `nile.exact`, `nile.streams` and what lies below.
"""
