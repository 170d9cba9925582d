"""What a continuous query computes: the nodes of its plan, windows, and the constraints that streams keep.

Imports `nile.aggregates` and `nile.exact.state`.
"""
