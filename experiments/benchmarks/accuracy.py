"""What answers are worth under a budget: the bars of joins, selections and aggregates, with what was measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict

from experiments.benchmarks import accuracy_aggregates, accuracy_joins, accuracy_selections
from experiments.benchmarks.accuracy_aggregates import Row
from experiments.benchmarks.harness import Result, benchmark

__all__ = ["aggregates", "joins", "selections"]

_SEEDS = (0, 1, 2, 3, 4)


@benchmark("accuracy-joins", "What joins find under a budget, against their opponents and bars")
def joins() -> Result:
    """desc, weighted, asc, fade and real data; five seeds under the cost clock."""
    return _measured("accuracy-joins", "joins under a budget", accuracy_joins.rows)


@benchmark("accuracy-selections", "What standing selections find under a budget, against their opponents and bars")
def selections() -> Result:
    """100 range predicates and more; five seeds under the cost clock."""
    return _measured("accuracy-selections", "standing selections under a budget", accuracy_selections.rows)


@benchmark("accuracy-aggregates", "How far aggregates are off under a budget, and how often intervals cover")
def aggregates() -> Result:
    """Sums and averages of 100 predicates, coverage, Horvitz-Thompson over joins; five seeds."""
    return _measured("accuracy-aggregates", "aggregates under a budget", accuracy_aggregates.rows)


def _measured(name: str, title: str, measure: Callable[[Sequence[int]], list[Row]]) -> Result:
    rows = measure(_SEEDS)
    asked = [row for row in rows if row.met is not None]
    missed = [row.name for row in asked if not row.met]
    return Result(
        name=name,
        title=f"{title}, {len(_SEEDS)} seeds",
        unit="bars",
        work=len(asked),
        timings=(),
        ratios=(),
        figures={row.name: _told(row) for row in rows},
        notes=(
            f"{len(asked) - len(missed)} of {len(asked)} bars met",
            *(f"NOT met: {each}" for each in missed),
        ),
        rows=tuple(asdict(row) for row in rows),
    )


def _told(row: Row) -> str:
    bar = "" if row.bar is None else f"; bar {row.bar:g}: {'met' if row.met else 'NOT met'}"
    return f"{row.measured:.4g}{bar} ({row.about})"
