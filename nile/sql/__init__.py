"""From text to a bound plan: tokens, clauses, binder, logical plan, rewriting.  Nothing runs here.

Imports `nile.expressions`, `nile.aggregates`, `nile.mining`, `nile.sensors` and what lies below.
"""
