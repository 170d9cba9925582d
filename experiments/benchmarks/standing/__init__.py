"""Standing joins on Spark: what parts find of one budget, and how work divides among parts and executors.

Imports `nile`.
"""

from nile.experiments.benchmarks.standing import cluster, parts

__all__ = ["cluster", "parts"]
