"""Whether answers are true: samples against plain sampling, outliers against every other way, intervals that cover.

A cell is a pair of streams under a budget.  Every contestant of a cell is granted the same on the cost clock (`engine`
table), and seeds are 0, 1, 2, ...  `hash-keys`, which is told beforehand what each key costs, stands beside the others.
An empty sample counts as far off as one pair alone may be (Hist-MSE 1).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from nile.answers.join_answer import JoinAnswer
from nile.experiments.benchmarks.harness import Measure, Result, benchmark
from nile.experiments.benchmarks.truth.default import is_paid, sampled_by_default
from nile.experiments.benchmarks.truth.family import FAMILY, made, real
from nile.experiments.run.retail import retail_file
from nile.operators.common.plan import JoinPlan, default_spec
from nile.operators.inputs.joining import Joinable
from nile.preferences.budget import Budget
from nile.report.metrics import ExactPairs, Obtained, score
from nile.report.truth import exact_pairs

__all__ = ["Grid", "measured", "outliers", "pairs_found", "sampled", "truth"]

Array = np.ndarray[Any, Any]
TITLE = "Whether answers are true: samples, outliers and intervals over streams that nobody tuned for"
_CAP = 4
_SHEDDING, _DROPPING, _BACKLOG, _KEYS = "shed-uniform", "hash-drop", "hash-backlog", "hash-keys"
_LARGER = 3
"""Times the tuples, where strategies choose: a smaller input is hardly looked at before all of it is joined."""
_FROM = 0.05
_COVERED, _UNKNOWN = 0.93, 0.1
_SURE = 3.0  # standard errors
_NOTHING = 1e-3  # of the total: what rounding of even draws makes of it


@dataclass(frozen=True, slots=True)
class Grid:
    """How much is measured.  tuples: of a stream; seeds: of each cell; retail: whether the real file is asked too."""

    tuples: int
    seeds: int
    budgets: tuple[float, ...]
    names: tuple[str, ...] = tuple(FAMILY)
    retail: bool = False


@dataclass(frozen=True, slots=True)
class Sampled:
    """One contestant in one cell.  total, low, high: of each seed, over the true total; mse: means over seeds."""

    key_mse: float
    age_mse: float
    total: Array
    low: Array
    high: Array
    known: Array

    @property
    def error(self) -> float:
        """Root mean squared error of the total, relative."""
        return float(np.sqrt(np.mean((self.total - 1.0) ** 2)))

    @property
    def off(self) -> float:
        """How far the mean total lies from the truth, in standard errors."""
        spread = float(self.total.std(ddof=1)) / np.sqrt(len(self.total))
        gap = abs(float(self.total.mean()) - 1.0)
        return gap / spread if spread > 0.0 else 0.0 if gap < 1e-9 else float("inf")

    @property
    def covered(self) -> float:
        """The share of the intervals claimed that hold the truth; 1 where none is."""
        inside = (self.low <= 1.0 + 1e-9) & (self.high >= 1.0 - 1e-9)
        return float(inside[self.known].mean()) if self.known.any() else 1.0


def _plan(joined: Joinable, budget: float, seed: int, **options: Any) -> JoinPlan:
    spec = default_spec(joined.window, ranking=options.get("preference") != "asc", seed=seed)
    return JoinPlan(
        window=joined.window, budget=Budget(budget), outlier_cap=_CAP, spec=spec, seed=seed,
        **{"guide": "directory", **options},
    )  # fmt: skip


def _found(joined: Joinable, plan: JoinPlan) -> tuple[JoinAnswer, Obtained]:
    answer = JoinAnswer(joined, plan, key="key")
    pairs = answer.pairs()
    return answer, Obtained(pairs.left, pairs.right, pairs.weight)


def sampled(joined: Joinable, exact: ExactPairs, budget: float, seeds: int, **options: Any) -> Sampled:
    """A cell asked for a sample: `weighted`, or an opponent whose pairs all weigh the same."""
    shedding = options.get("method", "nile") != "nile"
    key, age, total, low, high, known = [], [], [], [], [], []
    for seed in range(seeds):
        plan = _plan(joined, budget, seed, preference="weighted", **options)
        answer, found = _found(joined, plan)
        told = score(exact, found, window=joined.window, outlier_cap=_CAP)
        key.append(1.0 if told.hist_mse_key is None else told.hist_mse_key)
        age.append(1.0 if told.hist_mse_age is None else told.hist_mse_age)
        total.append(float(found.weight.sum()) / len(exact))
        if shedding:
            continue
        estimate = answer.estimate
        low.append(estimate.low / len(exact))
        high.append(estimate.high / len(exact))
        known.append(np.isfinite(estimate.high))
    return Sampled(
        float(np.mean(key)), float(np.mean(age)), np.array(total), np.array(low), np.array(high), np.array(known, bool)
    )


def outliers(joined: Joinable, exact: ExactPairs, budget: float, seeds: int, **options: Any) -> tuple[float, float]:
    """(outlier recall, precision) of a contestant, means over seeds; (1, 1) where there is no outlier."""
    recall, precision = [], []
    for seed in range(seeds):
        _, found = _found(joined, _plan(joined, budget, seed, **options))
        told = score(exact, found, window=joined.window, outlier_cap=_CAP)
        recall.append(1.0 if told.outlier_recall is None else told.outlier_recall)
        precision.append(1.0 if told.outlier_precision is None else told.outlier_precision)
    return float(np.mean(recall)), float(np.mean(precision))


def _streams(grid: Grid) -> Iterator[tuple[str, Joinable, ExactPairs]]:
    for name in grid.names:
        joined = made(name, grid.tuples)
        yield name, joined, exact_pairs(joined)
    path = retail_file()
    if grid.retail and path is not None:
        for name, joined in real(path).items():
            yield name, joined, exact_pairs(joined)


def _sample_rows(grid: Grid, guide: str) -> Iterator[dict[str, Any]]:
    for name, joined, exact in _streams(grid):
        for budget in grid.budgets:
            shed = sampled(joined, exact, budget, grid.seeds, method=_SHEDDING)
            keys = sampled(joined, exact, budget, grid.seeds, method=_KEYS)
            own = sampled(joined, exact, budget, grid.seeds, guide=guide)
            yield {
                "streams": name, "budget": budget, "guide": guide,
                "key": own.key_mse, "key_shed": shed.key_mse, "key_keys": keys.key_mse,
                "age": own.age_mse, "age_shed": shed.age_mse, "age_keys": keys.age_mse,
                "error": own.error, "error_shed": shed.error, "error_keys": keys.error,
                "mean": float(own.total.mean()), "off": own.off, "covered": own.covered,
                "unknown": 1.0 - float(own.known.mean()),
                "width": float(np.median((own.high - own.low)[own.known])) if own.known.any() else None,
            }  # fmt: skip


def _outlier_rows(grid: Grid) -> Iterator[dict[str, Any]]:
    for name, joined, exact in _streams(grid):
        before = 0.0
        for budget in grid.budgets:
            seeds = max(1, grid.seeds // 4)
            own, precision = outliers(joined, exact, budget, seeds, preference="asc")
            others = {
                "desc": outliers(joined, exact, budget, seeds, preference="desc")[0],
                "weighted": outliers(joined, exact, budget, seeds, preference="weighted")[0],
                _SHEDDING: outliers(joined, exact, budget, seeds, method=_SHEDDING, preference="asc")[0],
                _DROPPING: outliers(joined, exact, budget, seeds, method=_DROPPING, preference="asc")[0],
            }
            best = max(others, key=others.__getitem__)
            yield {
                "streams": name, "budget": budget, "recall": own, "precision": precision, "best": best,
                "best_recall": others[best], "before": before,
                "keys_recall": outliers(joined, exact, budget, seeds, method=_KEYS, preference="asc")[0],
            }  # fmt: skip
            before = own


def pairs_found(joined: Joinable, exact: ExactPairs, budget: float, seeds: int, **options: Any) -> float:
    """The share of all pairs that a contestant finds, a mean over seeds."""
    found = [len(_found(joined, _plan(joined, budget, seed, **options))[1].left) for seed in range(seeds)]
    return float(np.mean(found)) / max(1, len(exact))


def _volume_rows(grid: Grid) -> Iterator[dict[str, Any]]:
    for name, joined, exact in _streams(grid):
        for budget in grid.budgets:
            seeds = max(1, grid.seeds // 4)
            others = {
                other: pairs_found(joined, exact, budget, seeds, method=other, preference="desc")
                for other in (_SHEDDING, _DROPPING, _BACKLOG)
            }
            best = max(others, key=others.__getitem__)
            keys = pairs_found(joined, exact, budget, seeds, method=_KEYS, preference="desc")
            for guide in ("directory", "countsketch"):
                own = pairs_found(joined, exact, budget, seeds, guide=guide, preference="desc")
                yield {
                    "streams": name, "budget": budget, "by": guide, "pairs": own, "best": best,
                    "best_pairs": others[best], "keys_pairs": keys,
                }  # fmt: skip


def _default_rows(grid: Grid) -> Iterator[dict[str, Any]]:
    for name in grid.names:
        joined = made(name, _LARGER * grid.tuples)
        exact = exact_pairs(joined)
        for budget in grid.budgets:
            for strategy in ("auto", "keys"):
                if not is_paid(joined, budget, strategy):
                    continue
                told = sampled_by_default(joined, exact, budget, max(2, grid.seeds // 2), strategy=strategy)
                one = Sampled(told.key, told.age, told.total, told.low, told.high, np.isfinite(told.high))
                yield {
                    "streams": name, "budget": budget, "strategy": strategy, "ways": "+".join(told.ways),
                    "key_ideal": told.key, "age_ideal": told.age, "error": one.error,
                    "mean": float(told.total.mean()), "off": one.off, "covered": one.covered,
                    "unknown": 1.0 - float(one.known.mean()),
                }  # fmt: skip


def _ratio(own: float, theirs: float) -> float:
    return 1.0 if own == theirs else own / theirs if theirs else float("inf")


def _sample_measures(rows: Sequence[dict[str, Any]], guide: str) -> Iterator[Measure]:
    mine = [row for row in rows if row.get("guide") == guide]
    for figure, told in (("key", "Hist-MSE by key"), ("age", "Hist-MSE by age"), ("error", "error of the total")):
        for other, short, least in ((_SHEDDING, "shed", 1 / 3), (_KEYS, "keys", None)):
            ratios = [_ratio(row[figure], row[f"{figure}_{short}"]) for row in mine]
            cells = f"weighted, {guide}: {told} over that of {other}"
            share = float(np.mean(np.array(ratios) <= 1.0))
            yield Measure(f"{cells}, cells where it is at most 1", share, "", None if least is None else 1.0)
            yield Measure(f"{cells}, median cell", median(ratios), "", least, most=True)
    told = f"weighted, {guide}"
    biased = float(np.mean([row["off"] > _SURE for row in mine]))
    yield Measure(f"{told}: cells whose mean is more than {_SURE:g} standard errors off", biased, "", 0.0, most=True)
    yield Measure(f"{told}: least coverage of claimed intervals", min(row["covered"] for row in mine), "", _COVERED)
    known = [row["unknown"] > 0.5 for row in mine if row["budget"] > 0.01]
    share = float(np.mean(known)) if known else 0.0
    yield Measure(f"{told}: cells above 1 % whose interval is unknown", share, "", _UNKNOWN, most=True)
    widths = [row["width"] for row in mine if row["width"] is not None]
    yield Measure(f"{told}: median width of an interval, in totals", median(widths) if widths else 0.0)


def _outlier_measures(rows: Sequence[dict[str, Any]]) -> Iterator[Measure]:
    mine = [row for row in rows if "recall" in row]
    led = [row["recall"] >= row["best_recall"] - 1e-12 for row in mine]
    yield Measure("asc: cells where no other way finds more outliers", float(np.mean(led)), "", 1.0)
    foreseen = [row["recall"] >= row["keys_recall"] - 1e-12 for row in mine]
    yield Measure(f"asc: cells where {_KEYS} finds no more outliers", float(np.mean(foreseen)), "", 1.0)
    yield Measure("asc: least precision", min(row["precision"] for row in mine), "", 1.0)
    fell = [row["recall"] < row["before"] - 1e-12 for row in mine]
    yield Measure("asc: cells that find fewer than with less budget", float(np.mean(fell)), "", 0.0, most=True)


def _volume_measures(rows: Sequence[dict[str, Any]]) -> Iterator[Measure]:
    for guide, least in (("directory", 0.0), ("countsketch", _FROM)):
        mine = [row for row in rows if row.get("by") == guide and row["budget"] >= least]
        ratios = [_ratio(row["pairs"], row["best_pairs"]) for row in mine]
        cells = f"desc, {guide}{f', from {least:.0%} on' if least else ''}: pairs over those of the best opponent"
        yield Measure(
            f"{cells}, cells where they are at least as many", float(np.mean(np.array(ratios) >= 1.0)), "", 1.0
        )
        yield Measure(f"{cells}, median cell", median(ratios))
        foreseen = [_ratio(row["pairs"], row["keys_pairs"]) for row in mine]
        cells = f"{cells[: -len('the best opponent')]}{_KEYS}"
        share = float(np.mean(np.array(foreseen) >= 1.0))
        yield Measure(f"{cells}, cells where they are at least as many", share, "", 1.0)
        yield Measure(f"{cells}, median cell", median(foreseen))


def _default_measures(rows: Sequence[dict[str, Any]]) -> Iterator[Measure]:
    for strategy, told in (("auto", "weighted by default"), ("keys", "weighted, strategy keys")):
        mine = [row for row in rows if row.get("strategy") == strategy]
        if not mine:
            continue
        biased = float(np.mean([row["off"] > _SURE and row["error"] > _NOTHING for row in mine]))
        yield Measure(
            f"{told}: cells whose mean is more than {_SURE:g} standard errors off", biased, "", 0.0, most=True
        )
        covered = min(row["covered"] for row in mine)
        yield Measure(f"{told}: least coverage of claimed intervals", covered, "", _COVERED)
        known = float(np.mean([row["unknown"] > 0.5 for row in mine]))
        yield Measure(f"{told}: cells whose interval is unknown", known, "", _UNKNOWN, most=True)
        for figure in ("key", "age"):
            ratio = median(row[f"{figure}_ideal"] for row in mine)
            yield Measure(
                f"{told}: Hist-MSE by {figure} over that of as many pairs drawn at random, median cell", ratio
            )


def _worst(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    for row in rows:
        where = f"{row['streams']} at {row['budget']:g}"
        if "pairs" in row:
            least = _FROM if row["by"] == "countsketch" else 0.0
            if row["pairs"] < row["best_pairs"] and row["budget"] >= least:
                told = f"{row['pairs']:.3g} of the pairs, {row['best']} {row['best_pairs']:.3g}"
                yield f"{where}: desc by {row['by']} finds {told}"
            if row["pairs"] < row["keys_pairs"] and row["budget"] >= least:
                yield f"{where}: desc by {row['by']} finds {row['pairs']:.3g}, {_KEYS} {row['keys_pairs']:.3g}"
            continue
        if "strategy" in row:
            where = f"{where}, {row['strategy']} ({row['ways']})"
            if row["off"] > _SURE and row["error"] > _NOTHING:
                yield f"{where}: mean {row['mean']:.3f}, {row['off']:.1f} standard errors off"
            if row["covered"] < _COVERED:
                yield f"{where}: covers {row['covered']:.2f}"
            continue
        if "recall" in row:
            if row["recall"] < row["best_recall"] - 1e-12:
                yield f"{where}: asc finds {row['recall']:.3f} of the outliers, {row['best']} {row['best_recall']:.3f}"
            if row["recall"] < row["keys_recall"] - 1e-12:
                yield f"{where}: asc finds {row['recall']:.3f}, {_KEYS} {row['keys_recall']:.3f}"
            if row["recall"] < row["before"] - 1e-12:
                yield f"{where}: asc finds {row['recall']:.3f}, {row['before']:.3f} with less budget"
            continue
        where = f"{where}, {row['guide']}"
        for figure in ("key", "age", "error"):
            if row[figure] > row[f"{figure}_shed"]:
                yield f"{where}: {figure} {row[figure]:.3g} against {row[f'{figure}_shed']:.3g}"
        if row["off"] > _SURE:
            yield f"{where}: mean {row['mean']:.3f}, {row['off']:.1f} standard errors off"
        if row["covered"] < _COVERED:
            yield f"{where}: covers {row['covered']:.2f}"


def measured(grid: Grid, guides: Sequence[str] = ("directory", "countsketch")) -> Result:
    """All cells of a grid."""
    rows = [row for guide in guides for row in _sample_rows(grid, guide)]
    rows += [*_outlier_rows(grid), *_volume_rows(grid), *_default_rows(grid)]
    measures = [measure for guide in guides for measure in _sample_measures(rows, guide)]
    measures += [*_outlier_measures(rows), *_volume_measures(rows), *_default_measures(rows)]
    missed = list(_worst(rows))
    return Result(
        name="truth",
        title=f"{TITLE[0].lower()}{TITLE[1:]}; seeds: {grid.seeds}",
        unit="cells",
        work=len(rows),
        timings=(),
        measures=tuple(measures),
        notes=tuple(missed),
        rows=tuple(rows),
    )


QUICK = Grid(tuples=4_000, seeds=12, budgets=(0.01, 0.05, 0.2, 0.5))
FULL = Grid(tuples=4_000, seeds=500, budgets=(0.001, 0.01, 0.02, 0.05, 0.2, 0.5), retail=True)


@benchmark("truth", TITLE, brief=partial(measured, QUICK, ("directory",)))
def truth() -> Result:
    """The full form: 500 seeds a cell, some hours; `nile bench run --brief truth` takes some minutes."""
    return measured(FULL)
