"""The quality of answers in figures: metrics, truth, records, runs, verdicts.

Imports `nile.operators` and what lies below; `pages` and `accuracy` build on it.
"""
