"""Aggregates: which there are, what they take and give, and how one is asked for as text.

Imports `nile.base` and `nile.expressions`.
"""
