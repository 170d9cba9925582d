"""Exact window joins of two and more streams: the chain join, and the W-join family over a window graph.

Imports `nile.exact.state`.
"""
