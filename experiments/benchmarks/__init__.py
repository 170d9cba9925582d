"""Benchmarks against peers.  `run(names)` measures, `names()` lists; importing a module registers it."""

from experiments.benchmarks import accuracy, ingest, memory, promise, ranges, share, sketch
from experiments.benchmarks.harness import Result, names, run

__all__ = ["Result", "accuracy", "ingest", "memory", "names", "promise", "ranges", "run", "share", "sketch"]
