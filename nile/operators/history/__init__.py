"""Joins, selections and sums over all that is kept, in growing steps (pull: step, coverage, estimate).

Imports `nile.pyramid.history`.
"""
