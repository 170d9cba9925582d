"""Benchmarks against peers.  `run(names)` measures, `names()` lists; importing a module registers it.

Imports `nile`.
"""

from nile.experiments.benchmarks import (
    build,
    checkpoints,
    exact,
    history,
    ingest,
    pipelines,
    promise,
    pushes,
    reading,
    runtime,
    scale,
    scan,
    server,
    standing,
    surface,
)
from nile.experiments.benchmarks.accuracy import accuracy
from nile.experiments.benchmarks.budgets import deadlines, realtime, share
from nile.experiments.benchmarks.harness import Result, names, run
from nile.experiments.benchmarks.nexmark import nexmark
from nile.experiments.benchmarks.sensors import sensors
from nile.experiments.benchmarks.summaries import guides, memory, one_grid, sketch
from nile.experiments.benchmarks.truth import truth

__all__ = [
    "Result",
    "accuracy",
    "build",
    "checkpoints",
    "deadlines",
    "exact",
    "guides",
    "history",
    "ingest",
    "memory",
    "names",
    "nexmark",
    "one_grid",
    "pipelines",
    "promise",
    "pushes",
    "reading",
    "realtime",
    "run",
    "runtime",
    "scale",
    "scan",
    "sensors",
    "server",
    "share",
    "sketch",
    "standing",
    "surface",
    "truth",
]
