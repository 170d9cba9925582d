"""How good an answer is, in figures: metrics, truth, records, runs, verdicts.

Imports `nile.operators` and what lies below; `pages` and `accuracy` are made of it.
"""
