"""How right aggregates under a budget are, and whether their intervals hold what they promise.

The data is the real retail file beside the project where it is there, else the synthetic generator's.  Costs:
everything a method does is charged, against feeding every tuple to every query.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import nile
from nile.answers.aggregate_answer import AggregateAnswer
from nile.answers.aggregate_query import AggregateQuery
from nile.experiments.benchmarks.harness import Measure
from nile.experiments.run.retail import retail_file
from nile.streams.synthetic import SyntheticRetail
from nile.summaries.estimate import Estimate

__all__ = [
    "coverage_of_prices",
    "errors_and_coverage",
    "retail_or_synthetic",
    "rows",
    "targets",
    "weighted_join",
]

Array = np.ndarray[Any, Any]
_PREDICATES = 100
_BUDGET = 0.1
_LEAST_TRIALS = 2_000
_SAMPLES = 12
"""Samples drawn for each seed's predicates: queries of one run share their sample and are not independent."""
_ROUNDING = 1e-9  # relative: an exact sum in another order
ERROR_BAR = 0.01
COVERAGE_BAR = 0.93
ASKED = {"sum": "sum(price * quantity)", "avg": "avg(price * quantity)"}


def retail_or_synthetic() -> tuple[str, pa.Table]:
    """The retail file's columns that matter here, or synthetic ones, and which."""
    columns = ["ts", "item_id", "price", "quantity"]
    file = retail_file()
    if file:
        return "retail", pq.read_table(file, columns=columns)
    made = SyntheticRetail(seed=1, tuples=120_000)
    return "synthetic", pa.Table.from_batches(list(made.batches())).select(columns)


def range_predicates(table: pa.Table, seed: int, count: int = _PREDICATES) -> dict[str, str]:
    """Time ranges and item ranges by turns, each with 5 to 10 % of the tuples."""
    chance = np.random.Generator(np.random.PCG64(seed))
    times = np.sort(table["ts"].cast(pa.timestamp("us")).cast(pa.int64()).to_numpy())
    items = np.sort(table["item_id"].to_numpy(zero_copy_only=False))
    n = times.shape[0]
    predicates = {}
    for q in range(count):
        share = 0.05 + 0.05 * chance.random()
        begin = int(chance.random() * (1.0 - share) * n)
        end = min(n - 1, begin + int(share * n))
        if q % 2:
            predicates[f"q{q}"] = f"item_id BETWEEN '{items[begin]}' AND '{items[end]}'"
        else:
            ends = [str(np.datetime64(int(times[at]), "us")).replace("T", " ") for at in (begin, end)]
            predicates[f"q{q}"] = f"ts BETWEEN TIMESTAMP '{ends[0]}' AND TIMESTAMP '{ends[1]}'"
    return predicates


def _answers(query: AggregateQuery, budget: float, seeds: Sequence[int]) -> Iterator[AggregateAnswer]:
    asked, accounting = query.load()
    for seed in seeds:
        yield AggregateAnswer(asked, query.using(seed=seed).plan(budget), accounting, standing=True)


def _holds(estimate: Estimate, truth: float) -> bool:
    slack = _ROUNDING * max(1.0, abs(truth))
    return bool(float(estimate.low) - slack <= truth <= float(estimate.high) + slack)


def errors_and_coverage(
    table: pa.Table, seeds: Sequence[int], *, costs: str, budget: float = _BUDGET, samples: int = 1, **options: Any
) -> Mapping[str, list[tuple[float, bool, bool]]]:
    """Of each aggregate: (relative error, certified, covered) of every query whose truth is not 0.

    seeds: of the predicates; samples: how many samples are drawn for each; options: of the query.
    """
    told: dict[str, list[tuple[float, bool, bool]]] = {name: [] for name in ASKED}
    for seed in seeds:
        predicates = range_predicates(table, seed)
        db = nile.connect().register("sales", table, time="ts")
        query = db.aggregate("sales", ASKED, predicates=predicates).using(costs=costs)
        exact = next(_answers(query.using(method="naive"), 1.0, [0]))
        truth = {(name, q): float(exact.value(name, query=q)) for name in ASKED for q in predicates}
        for answer in _answers(query.using(**options), budget, [samples * seed + i for i in range(samples)]):
            assert answer.budget.spent <= budget * (1.0 + _ROUNDING)
            for (name, q), right in truth.items():
                estimate = answer.estimate(name, query=q)
                if right:
                    off = abs(float(estimate.value) - right) / abs(right)
                    told[name].append((off, estimate.certified, _holds(estimate, right)))
    return told


def coverage_of_prices(
    trials: int, drawn: int, what: str, *, tuples: int = 20_000, first: int = 0
) -> tuple[int, float, float]:
    """Samples of about `drawn` of the synthetic stream's tuples: certified ones, their coverage, that of all.

    what: the expression whose average is asked for.  first: the seed of the first sample.
    """
    table = pa.Table.from_batches(list(SyntheticRetail(seed=11, tuples=tuples).batches()))
    db = nile.connect().register("sales", table, time="ts")
    query = db.aggregate("sales", {"mean": f"avg({what})"}).using(method="sample")
    asked, accounting = query.load()
    right = float(AggregateAnswer(asked, query.using(method="naive").plan(), accounting).value("mean"))
    certified = covered = all_covered = 0
    for seed in range(first, first + trials):
        answer = AggregateAnswer(asked, query.using(seed=seed).plan(drawn / tuples), accounting)
        estimate = answer["mean"]
        held = _holds(estimate, right)
        all_covered += held
        certified += estimate.certified
        covered += estimate.certified and held
    return certified, covered / max(1, certified), all_covered / trials


def targets(table: pa.Table, seeds: Sequence[int], error: float = 0.01) -> tuple[float, float, int]:
    """Error targets on average prices of item ranges: share within the error, mean spending, how many."""
    within = spent = count = 0.0
    for seed in seeds:
        predicates = range_predicates(table, seed, 10)
        db = nile.connect().register("sales", table, time="ts")
        for condition in predicates.values():
            query = db.aggregate("sales", {"mean": "avg(price)"}, where=condition).using(seed=seed)
            right = float(query.run().value("mean"))
            answer = query.run(error=error)
            within += abs(float(answer.value("mean")) / right - 1.0) <= error
            spent += answer.budget.spent
            count += 1
    return within / count, spent / count, int(count)


def weighted_join(runs: int, budget: float, *, tuples: int = 1_500) -> tuple[float, float, float]:
    """A weighted join's sum(a.price * b.price) over `runs` seeds: off in standard errors, coverage, mean shed.

    Two streams of `tuples` each, keys cubically skewed over 40, a window of an eighth of the streams.
    """
    chance = np.random.Generator(np.random.PCG64(1))
    db = nile.connect()
    for name in ("a", "b"):
        columns = {
            "t": np.sort(chance.integers(0, 2 * tuples, tuples)),
            "k": (40 * chance.random(tuples) ** 3).astype(np.int64),
            "price": chance.random(tuples) * 10.0,
        }
        db.register(name, pa.table(columns), time="t")
    query = db.join("a", "b", on="k", window=tuples / 4).guided_by("directory").using(granularity=tuples / 16)
    asked = {"v": "sum(a.price * b.price)"}
    right = float(query.aggregate(asked).run().value("v"))
    values, covered, shed = [], 0, 0
    for seed in range(runs):
        answer = query.prefer("weighted").using(seed=seed).aggregate(asked).run(budget)
        values.append(float(answer.value("v")))
        covered += _holds(answer["v"], right)
        shed += sum(answer.answer.figures.shed)
    error = float(np.std(values, ddof=1)) / runs**0.5
    return abs(float(np.mean(values)) - right) / error, covered / runs, shed / runs


def rows(seeds: Sequence[int], *, trials: int = _LEAST_TRIALS, joins: int = 500) -> list[Measure]:
    """Every bar of aggregates, measured.  seeds: five or more; joins: seeds of the weighted join; minutes."""
    name, table = retail_or_synthetic()
    found = []
    for costs in ("engine", "memory"):
        for way, borders in (("learned borders", "learned"), ("as chosen", "auto")):
            told = errors_and_coverage(table, seeds, costs=costs, borders=borders)
            for aggregate, trial in told.items():
                middle = median(off for off, _, _ in trial)
                found.append(
                    Measure(
                        f"{name}, {aggregate}(price * quantity), {costs} table, {way}: median relative error",
                        middle,
                        bar=ERROR_BAR,
                        most=True,
                        about=f"{_PREDICATES} ranges of 5 to 10 %, budget {_BUDGET:.0%}, {len(seeds)} seeds",
                    )
                )
    found += _coverage_rows(name, table, seeds, trials)
    for budget in (0.3, 0.6):
        off, covered, shed = weighted_join(joins, budget)
        found.append(
            Measure(
                f"weighted join, budget {budget:.0%}: sum(a.price * b.price) off in standard errors",
                off,
                bar=3.0,
                most=True,
                about=f"{joins} seeds; 95 % intervals, not certified, covered {covered:.3f}; {shed:,.0f} shed a run",
            )
        )
    within, spent, count = targets(table, seeds)
    found.append(
        Measure(
            f"{name}, avg(price), error target 1 %: share within it",
            within,
            bar=0.95,
            about=f"{count} item and time ranges asked one by one; mean spending {spent:.1%} of the exact cost",
        )
    )
    return found


def _coverage_rows(name: str, table: pa.Table, seeds: Sequence[int], trials: int) -> list[Measure]:
    found = []
    for what in ("price", "price * quantity"):
        sizes = (100, 300, 1_000)
        sized = [coverage_of_prices(-(-trials // len(sizes)), drawn, what) for drawn in sizes]
        certified = sum(part[0] for part in sized)
        coverage = sum(part[0] * part[1] for part in sized) / max(1, certified)
        about = "; ".join(
            f"{n} drawn: {part[0]} certified, {part[1]:.3f}" for n, part in zip(sizes, sized, strict=True)
        )
        found.append(
            Measure(
                f"synthetic, avg({what}): coverage of certified 95 % intervals",
                coverage,
                bar=COVERAGE_BAR if certified else None,
                about=f"{trials} trials; {about}; certified or not: {sum(part[2] for part in sized) / len(sizes):.3f}",
            )
        )
    for way, costs, budget in (("sample", "engine", 0.05), ("grid", "memory", 0.05)):
        told = errors_and_coverage(
            table, seeds, costs=costs, budget=budget, samples=_SAMPLES, method=way, borders="learned"
        )
        every = [trial for part in told.values() for trial in part]
        kept = [covered for _, certified, covered in every if certified]
        coverage = sum(kept) / max(1, len(kept))
        plain = sum(covered for _, _, covered in every) / len(every)
        found.append(
            Measure(
                f"{name}, sum and avg(price * quantity) by {way}: coverage of certified 95 % intervals",
                coverage,
                bar=COVERAGE_BAR if kept else None,
                about=f"{len(kept)} of {len(every)} certified; all: {plain:.3f}; budget {budget:.0%}, {costs} table",
            )
        )
    return found
