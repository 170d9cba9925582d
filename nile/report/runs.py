"""The records of a report as curves: one figure of one method over the budgets, seeds drawn together."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from nile.report.wording import Amount

__all__ = ["FIGURES", "Curve", "Figure", "Point", "Runs", "Series", "grouped", "number", "slots"]

Record = Mapping[str, Any]

_SLOTS = {"nile/countsketch": 0, "nile/directory": 1, "hash-drop": 2}  # everywhere, the README's picture too
# What must be equal for two runs to be comparable at all.
SETTING = (
    "dataset", "window_s", "output", "costs", "budget_unit", "replay", "replay_mean_s", "bursts", "speed", "fade",
    "outlier_cap", "forgetting",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of a record.

    short: its name inside a sentence.  axis: what the vertical axis says.  unit: share, distance or seconds.
    better: 1 more is better, -1 less is, 0 neither.  ideal: the figure that says what could be expected.
    """

    key: str
    title: str
    short: str
    axis: str
    unit: str
    better: int
    ideal: str | None = None


_DISTANCE = "Hist-MSE (log scale); lower is more faithful"

FIGURES = {
    figure.key: figure
    for figure in (
        Figure("recall", "Share of the exact pairs", "share of pairs", "of the exact pairs", "share", 1),
        Figure("mean_age_s", "Mean age of the pairs", "mean age", "mean |ts1 − ts2|", "seconds", 0),
        Figure(
            "hist_mse_key",
            "Distance from the exact answer, by key",
            "fidelity by key",
            _DISTANCE,
            "distance",
            -1,
            "hist_mse_key_ideal",
        ),
        Figure(
            "hist_mse_age",
            "Distance from the exact answer, by age",
            "fidelity by age",
            _DISTANCE,
            "distance",
            -1,
            "hist_mse_age_ideal",
        ),
        Figure("outlier_recall", "Outliers found", "outliers found", "of all outliers", "share", 1),
        Figure("outlier_precision", "Outliers among the output", "precision", "of the output", "share", 1),
        Figure(
            "outlier_recall_paper",
            "Outliers found, by the paper's definition",
            "outliers found",
            "of all outliers",
            "share",
            1,
        ),
        Figure(
            "outlier_precision_paper",
            "Outliers among the output, by the paper's definition",
            "precision",
            "of the output",
            "share",
            1,
        ),
    )
}


@dataclass(frozen=True, slots=True)
class Series:
    """A method with its guide.  slot: which colour and marker it has in every chart of the page."""

    method: str
    guide: str | None
    slot: int

    @property
    def name(self) -> str:
        """`nile/countsketch`, or the method alone when it has no guide."""
        return f"{self.method}/{self.guide}" if self.guide else self.method

    @property
    def is_nile(self) -> bool:
        """Whether summaries drive it: opponents have no guide."""
        return self.guide is not None


@dataclass(frozen=True, slots=True)
class Point:
    """A figure at one budget: mean, least and greatest over the seeds that have it (`seeds` of them)."""

    budget: float
    mean: float
    low: float
    high: float
    seeds: int


@dataclass(frozen=True, slots=True)
class Curve:
    """One series in one chart: a point for each budget where the figure exists."""

    series: Series
    points: tuple[Point, ...]

    def at(self, budget: float) -> Point | None:
        """The point at this budget, None where the figure does not exist."""
        return next((point for point in self.points if point.budget == budget), None)


class Runs:
    """The runs of one setting (same streams, window, output, cost table, pacing), in the order they came."""

    def __init__(self, records: Sequence[Record], series: Sequence[Series]) -> None:
        self.records = tuple(records)
        ran = {(record["method"], record["guide"]) for record in records}
        self.series = tuple(one for one in series if (one.method, one.guide) in ran)
        self.unit = str(self.of("budget_unit") or "fraction")
        amounts = sorted({b for record in records if (b := number(record, "budget") or 0) > 0})
        self.budgets = tuple(Amount.of(amount, self.unit) for amount in amounts)
        self.preferences = tuple(dict.fromkeys(record["preference"] for record in records))
        self.seeds = tuple(dict.fromkeys(str(record.get("seed")) for record in records))

    def of(self, name: str) -> Any:
        """A value that all runs share, such as `window_s`; None when no run tells."""
        return next((record[name] for record in self.records if record.get(name) is not None), None)

    def curve(self, series: Series, preference: str, key: str) -> Curve:
        """The figure `key` of one series under one preference."""
        points = []
        for budget in self.budgets:
            values = [
                value
                for record in self.records
                if (record["method"], record["guide"]) == (series.method, series.guide)
                and record["preference"] == preference
                and number(record, "budget") == budget
                and (value := number(record, key)) is not None
            ]
            if values:
                mean = math.fsum(values) / len(values)
                points.append(Point(budget, mean, min(values), max(values), len(values)))
        return Curve(series, tuple(points))

    def curves(self, preference: str, key: str) -> tuple[Curve, ...]:
        """The figure `key` of every series under one preference."""
        return tuple(self.curve(series, preference, key) for series in self.series)

    @property
    def is_reproducible(self) -> bool:
        """Whether the same seeds give the same figures again: not under budgets of CPU time."""
        return all(record.get("reproducible") is not False for record in self.records)

    @property
    def champion(self) -> Series | None:
        """Nile, by the guide that was named first; else the paper's, richest structure."""
        own = [one for one in self.series if one.is_nile]
        printed = sorted((one for one in self.series if one.method.startswith("paper")), key=lambda one: one.method)
        return next(iter(own or printed[-1:]), None)

    @property
    def opponents(self) -> tuple[Series, ...]:
        """The methods that the champion is not one of."""
        return tuple(one for one in self.series if not one.is_nile and one != self.champion)

    @property
    def rivals(self) -> tuple[Series, ...]:
        """Whom the champion is measured against: the opponents first, then Nile's other guides."""
        others = [one for one in self.series if one.is_nile and one != self.champion]
        return (*self.opponents, *others)


def slots(names: Sequence[str]) -> list[int]:
    """A colour and marker for each method: what stands in most reports looks the same in all, others take the rest."""
    taken = {_SLOTS[name] for name in names if name in _SLOTS}
    free = (slot for slot in count() if slot not in taken)
    return [_SLOTS[name] if name in _SLOTS else next(free) for name in names]


def grouped(records: Sequence[Record]) -> list[Runs]:
    """The records by setting, in the order they came.  A series keeps its slot in all of them."""
    printed = {record.get("structure") for record in records if record.get("method") == "paper"}
    named = [{**record, **_names(record, structures=len(printed) > 1)} for record in records]
    pairs = dict.fromkeys((record["method"], record["guide"]) for record in named)
    own = [pair for pair in pairs if pair[1]]
    others = [pair for pair in pairs if not pair[1]]
    both = [*own, *others]
    held = slots([f"{method}/{guide}" if guide else method for method, guide in both])
    series = [Series(method, guide, slot) for slot, (method, guide) in zip(held, both, strict=True)]
    settings: dict[str, list[Record]] = {}
    for record in named:
        setting = json.dumps([record.get(name) for name in SETTING], sort_keys=True, default=str)
        settings.setdefault(setting, []).append(record)
    return [Runs(group, series) for group in settings.values()]


def number(record: Record, name: str) -> float | None:
    """A figure of a record as a finite float; None when it is absent, null or no number."""
    value = record.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def _names(record: Record, *, structures: bool) -> dict[str, str | None]:
    """What tells runs apart, as text: method, guide (None for an opponent) and preference.

    structures: whether the method `paper` was run over several, which then go by its name.
    """
    method, guide, preference = (
        None if record.get(name) is None else str(record[name]) for name in ("method", "guide", "preference")
    )
    if structures and method == "paper":
        method = f"paper/{record.get('structure')}"
    return {"method": method or "unnamed", "guide": guide, "preference": preference or "unnamed"}
