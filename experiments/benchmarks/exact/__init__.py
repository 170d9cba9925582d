"""Exact joins beside their peers: the operators, ways to ask, ranges, and a grid of shapes.  Imports the engine."""

from nile.experiments.benchmarks.exact import grid, join, ranges, threads, ways

__all__ = ["grid", "join", "ranges", "threads", "ways"]
