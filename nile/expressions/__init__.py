"""Expressions over the columns of a row: tree, lowering from text, binding to types, evaluation over Arrow batches.

Imports `nile.base` and what lies below.
"""
