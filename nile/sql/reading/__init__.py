"""Parsing a SELECT: Nile's clauses are split off, the rest is parsed by sqlglot and lowered through an allow-list.

Imports what `nile.sql` may.
"""
