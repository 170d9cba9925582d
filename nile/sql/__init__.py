"""Text to a bound plan: tokens, clauses, binder, logical plan, rewriting.  Nothing is run here.

Imports `nile.base`, `nile.expressions` and `nile.streams`.
"""
