"""Joins, selections and sums over everything kept, in growing steps (pull: step, coverage, estimate).

Imports `nile.pyramid.history`.
"""
