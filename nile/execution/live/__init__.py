"""Live streams and standing queries under one lock.

Imports `nile.execution.approximate` and `nile.execution.exact`.
"""
