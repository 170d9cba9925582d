"""Constraints measured on streams, and the scheduling of operators.

Imports `nile.exact` and the errors.
"""
