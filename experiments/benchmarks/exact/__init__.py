"""Exact joins against their peers: the operators, the ways to write them, ranges, a grid of shapes,
and what standing queries cost as streams grow.

Imports `nile`.
"""

from nile.experiments.benchmarks.exact import grid, join, ranges, standing, threads, ways

__all__ = ["grid", "join", "ranges", "standing", "threads", "ways"]
