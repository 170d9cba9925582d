"""Constraints measured on streams, the scheduling of operators, and synopses of fixed size.

Imports `nile.exact` and `nile.summaries`.
"""
