"""The accuracy report of an answer: run again over budgets and seeds, beside opponents.

Imports `nile.report` and `pages`.
"""
