"""The quality of one query's answer: its figures as attributes, as JSON, and as a page."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nile.report.accuracy.advice import advice
from nile.report.accuracy.intervals import Coverage, coverages
from nile.report.accuracy.page import render
from nile.report.pages.bars import Compared
from nile.report.pages.markup import element
from nile.report.runs import Runs, grouped
from nile.report.saving import page_and_json, save_texts, to_json

if TYPE_CHECKING:
    from nile.report.accuracy.groups import GroupErrors
    from nile.report.accuracy.intervals import Interval
    from nile.report.accuracy.outliers import Outliers
    from nile.report.accuracy.summary_cells import CellErrors

__all__ = ["AccuracyReport"]


@dataclass(frozen=True, eq=False)
class AccuracyReport:
    """One query's answers under several budgets and seeds, against its exact answer.

    query: in words, or as SQL.  kind: "join", "combinations", "selection" or "aggregate".  exact: how many rows (or
    numbers) the exact answer has.  looked_at: the record of the run that histograms, outliers and groups are of;
    runs: a record each run, of `nile/report/records.py`.  skew: share of the exact answer that its heaviest tenth of
    keys has.  wider: (columns, share of tuples misjudged) of summaries with more columns, measured where the sketch is
    too small.  asc_finds: outliers that WITH PREFERENCE asc finds with the budget looked at, where another preference
    missed some.  warnings: of the answer; notes: what else to know.  Parts that the kind does not have are empty.
    Made by `Answer.report`, `MultiwayAnswer.report` and `Result.report`.
    """

    query: str
    kind: str
    preference: str
    exact: int
    looked_at: Mapping[str, Any]
    runs: tuple[Mapping[str, Any], ...]
    histograms: tuple[Compared, ...] = ()
    outliers: Outliers | None = None
    intervals: tuple[Interval, ...] = ()
    cells: tuple[CellErrors, ...] = ()
    groups: GroupErrors | None = None
    skew: float | None = None
    wider: tuple[tuple[int, float], ...] = ()
    asc_finds: int | None = None
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @cached_property
    def curves(self) -> Runs:
        """The runs as curves over the budgets."""
        return grouped(self.runs)[0]

    @property
    def recall(self) -> float | None:
        """The share of the exact answer that the run looked at found; None where that is empty."""
        value = self.looked_at.get("recall")
        return None if value is None else float(value)

    @property
    def recalls(self) -> dict[float, float]:
        """Mean share found over the seeds, by budget, of the query's own method."""
        found: dict[float, list[float]] = {}
        for run in self.runs:
            mine = all(run.get(name) == self.looked_at.get(name) for name in ("method", "guide"))
            if mine and run.get("recall") is not None:
                found.setdefault(float(run["budget"]), []).append(float(run["recall"]))
        return {budget: math.fsum(values) / len(values) for budget, values in sorted(found.items())}

    @property
    def coverage(self) -> tuple[Coverage, ...]:
        """How often told intervals held the truth, by budget."""
        return coverages(self.intervals)

    @cached_property
    def advice(self) -> tuple[str, ...]:
        """What the figures say to do, in sentences; each follows from a figure of this report."""
        return tuple(advice(self))

    def record(self) -> dict[str, Any]:
        """All figures as they stand in the JSON."""
        return {
            "query": self.query,
            "kind": self.kind,
            "preference": self.preference,
            "exact": self.exact,
            "advice": list(self.advice),
            "looked_at": dict(self.looked_at),
            "runs": [dict(run) for run in self.runs],
            "histograms": [one.record() for one in self.histograms],
            "outliers": None if self.outliers is None else self.outliers.record(),
            "intervals": [one.record() for one in self.intervals],
            "cells": [one.record() for one in self.cells],
            "groups": None if self.groups is None else self.groups.record(),
            "skew": self.skew,
            "wider": [{"columns": columns, "misjudged": share} for columns, share in self.wider],
            "asc_finds": self.asc_finds,
            "warnings": list(self.warnings),
            "notes": list(self.notes),
        }

    def html(self) -> str:
        """The page: one file, nothing loaded from anywhere."""
        return render(self)

    def save(self, path: str | Path) -> tuple[Path, Path]:
        """Write the page and the JSON beside it: FILE.html and FILE.json, or report.html and report.json in a folder.

        Each whole or not at all.  Raises ConfigError for a path that cannot be written.
        """
        page, figures = page_and_json(Path(path))
        save_texts({page: self.html(), figures: to_json(self.record())})
        return page, figures

    def _repr_html_(self) -> str:
        """The page in a frame of its own, for a notebook."""
        return str(element("iframe", srcdoc=self.html(), width="100%", height="800", style="border: 0"))

    def __repr__(self) -> str:
        found = "nothing to find" if self.recall is None else f"{self.recall:.1%} found"
        if self.kind == "aggregate":
            found = f"{len(self.runs)} runs"
        return f"<AccuracyReport of a {self.kind}, {self.preference}: {self.exact:,} exact, {found}>"

    def __str__(self) -> str:
        return "\n".join([self.query, *(f"- {line}" for line in self.advice)])
