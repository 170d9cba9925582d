"""The work of a build: what the store should hold of the stream, minus what it holds already.

The files of a store follow from the number of its rows (`nile.pyramid.history.layout`), so those that are there and are
still right stay, and work is cut at their edges.  Work on summaries begins where each stands.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from nile.pyramid.grid.manager import SummaryManager
from nile.pyramid.grid.manager_parts import leaves_of
from nile.pyramid.history.layout import index_runs, rows_runs
from nile.pyramid.lake.lake import Part
from nile.spark.building.reading import parts_between
from nile.spark.building.tasks import Asked, Run, Work

__all__ = ["Held", "Wanted", "balanced", "counting", "first_works", "grouped"]

ROWS_A_WORK = 2_000_000
"""Tuples that are worth a task of their own."""


@dataclass(frozen=True, slots=True)
class Held:
    """Runs of rows that have a file: by column those of its indices, and those of rows."""

    rows: frozenset[tuple[int, int]] = frozenset()
    indices: Mapping[str, frozenset[tuple[int, int]]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A stream of the store as it shall be.  columns: those to index, each with its summaries."""

    tuples: int
    segment: int
    largest: int
    columns: Mapping[str, Sequence[SummaryManager]]

    def rows_runs(self) -> list[tuple[int, int]]:
        """The files of rows."""
        return rows_runs(self.tuples, self.segment, self.largest)

    def index_runs(self) -> list[tuple[int, int]]:
        """The files of the indices of a column."""
        return index_runs(self.tuples, self.segment, self.largest)


def first_works(parts: Sequence[Part], wanted: Wanted, held: Held) -> list[Work]:
    """The works of kind rows and keys."""
    missing = [Run(*run) for run in wanted.rows_runs() if run not in held.rows]
    works = [_work("rows", parts, runs) for runs in grouped(missing, ROWS_A_WORK)]
    sealed = wanted.index_runs()
    reached = sealed[-1][1] if sealed else 0
    for column, managers in wanted.columns.items():
        asked = tuple(Asked(manager.spec, manager.store.tuples) for manager in managers)
        least = min((one.since for one in asked), default=wanted.tuples)
        there = held.indices.get(column, frozenset())
        runs = [Run(*run, run not in there) for run in sealed]
        if reached < wanted.tuples:
            runs.append(Run(reached, wanted.tuples, False))
        needed = [run for run in runs if run.written or run.end > least]
        works += [_work("keys", parts, group, column, asked) for group in grouped(needed, ROWS_A_WORK)]
    return works


def counting(
    parts: Sequence[Part], columns: Mapping[str, Sequence[tuple[SummaryManager, int]]], tasks: int
) -> list[Work]:
    """The works of kind counts, once zones are known.  columns: the managers, and from which ordinal each has news."""
    works = []
    for column, managers in columns.items():
        asked = tuple(Asked(manager.spec, since, tuple(leaves_of(manager, since))) for manager, since in managers)
        least = min(one.since for one in asked)
        new = [part for part in parts if part.last >= least]
        works += [Work("counts", tuple(some), (), column, asked) for some in balanced(new, tasks)]
    return works


def grouped(runs: Iterable[Run], most: int) -> list[list[Run]]:
    """Runs that follow on each other, together at most `most` rows or else one run."""
    groups: list[list[Run]] = []
    for run in runs:
        last = groups[-1] if groups else None
        if last is not None and last[-1].end == run.begin and run.end - last[0].begin <= most:
            last.append(run)
        else:
            groups.append([run])
    return groups


def balanced(parts: Sequence[Part], heaps: int) -> list[list[Part]]:
    """Parts in at most so many heaps of about as many rows: the longest first, each to the lightest heap."""
    found: list[list[Part]] = [[] for _ in range(min(heaps, len(parts)))]
    weights = [0] * len(found)
    for part in sorted(parts, key=lambda one: -one.rows):
        at = weights.index(min(weights))
        found[at].append(part)
        weights[at] += part.rows
    return found


def _work(
    kind: str, parts: Sequence[Part], runs: Sequence[Run], column: str = "", asked: tuple[Asked, ...] = ()
) -> Work:
    needed = parts_between(parts, runs[0].begin, runs[-1].end)
    return Work(kind, tuple(needed), tuple(runs), column, asked)
