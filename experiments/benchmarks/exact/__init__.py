"""Exact joins against their peers: the operators, the ways to write them, ranges, and a grid of shapes.

Imports `nile`.
"""

from nile.experiments.benchmarks.exact import grid, join, ranges, threads, ways

__all__ = ["grid", "join", "ranges", "threads", "ways"]
