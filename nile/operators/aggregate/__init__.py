"""Aggregates under a budget: whole cells exactly, edges by sampling, each number with an interval.

Imports `common`.
"""
