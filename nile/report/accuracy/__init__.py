"""The accuracy report of an answer: reruns over budgets and seeds, against opponents.

Imports `nile.report` and `pages`.
"""
