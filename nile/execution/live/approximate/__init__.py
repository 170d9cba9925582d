"""Standing queries within a budget: joins and selections by preference, aggregates over a sample.

Imports what `nile.execution.live` may.
"""
