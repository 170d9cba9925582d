"""Aggregates of one stream within fractions: what they cost, and how far off they are beside rows drawn by coin."""

from __future__ import annotations

import gc
import re
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as parquet

from nile.engine.database import Database
from nile.experiments.benchmarks.harness import Measure
from nile.summaries.heavy import pa

__all__ = ["Numbers", "numbers"]

TUPLES, MORE = 1_000_000, 4_000_000
"""Of streams in memory and in a file, and of one in memory, of which fractions pay for less."""
OVER, SLACK = 1.1, 0.02
"""Of a fraction of the exact CPU, and seconds beside it."""
NEAR = 1.25
"""Times our CPU that the opponent may take to be compared."""
SEEDS = 10
"""Samples whose errors are compared, by their root mean square."""
FITTED = 2
"""Times that the opponent's share is fitted to the CPU it may use."""
QUERIES = {
    "count where": "SELECT count(*) AS x FROM s WHERE v < 0.2 AND k > 5",
    "sum": "SELECT sum(p) AS x FROM s",
    "avg where": "SELECT avg(p) AS x FROM s WHERE v < 0.3",
    "sum by numbers": "SELECT g, sum(p) AS x FROM s GROUP BY g",
    "count by text where": "SELECT t, count(*) AS x FROM s WHERE v < 0.5 GROUP BY t",
}


class Numbers(NamedTuple):
    """Measures, a row for each run, and by cell how many times as far off as Nile the opponent is."""

    measures: list[Measure]
    rows: list[dict[str, Any]]
    ratios: list[float]


class _Asked(NamedTuple):
    """A statement, the rows of its stream, and the database it is asked of."""

    text: str
    table: pa.Table
    db: Database


def numbers(folder: Path, fractions: tuple[float, ...], compared: tuple[float, ...], rounds: int) -> Numbers:
    """Of a stream in memory and in a Parquet file.  compared: fractions whose errors are told, of that in memory."""
    told = Numbers([], [], [])
    for source, tuples in (("Arrow", TUPLES), ("Parquet", TUPLES), ("Arrow", MORE)):
        table = _table(tuples)
        if source == "Parquet":
            parquet.write_table(table, folder / "numbers.parquet")
        db = Database().register("s", table if source == "Arrow" else folder / "numbers.parquet", time="ts")
        for name, text in QUERIES.items():
            judged = compared if source == "Arrow" else ()  # of a file, reading alone takes the opponent longer
            _add(told, f"{name}, {tuples:,} rows, {source}", _Asked(text, table, db), fractions, judged, rounds)
    return told


def _table(tuples: int) -> pa.Table:
    """Values are Gamma(2), keys uneven, groups even: 20 numbers and 500 texts."""
    draw = np.random.default_rng(11)
    names = pa.array([f"name{k}" for k in range(500)])
    return pa.table({
        "ts": pa.array(np.arange(tuples) * 10_000_000).cast(pa.timestamp("ns")),
        "k": (1_000 * draw.random(tuples) ** 2).astype(np.int64), "v": draw.random(tuples),
        "p": draw.gamma(2.0, 3.0, tuples), "g": draw.integers(0, 20, tuples),
        "t": names.take(pa.array(draw.integers(0, 500, tuples))),
    })  # fmt: skip


def _add(
    told: Numbers, cell: str, asked: _Asked, fractions: tuple[float, ...], compared: tuple[float, ...], rounds: int
) -> None:
    spent: dict[float | None, list[float]] = {fraction: [] for fraction in (None, *fractions)}
    answers: dict[float, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what they say is read below
        for number in range(rounds + 1):
            gc.collect()
            for fraction in spent:
                cpu, answer = _timed(partial(_answered, asked, fraction))
                if number:
                    spent[fraction].append(cpu)
                if fraction is not None:
                    answers[fraction] = answer
    exact = median(spent.pop(None))
    for fraction, answer in answers.items():
        cpu = median(spent[fraction])
        free = answer.answer.is_exact or bool(answer.warnings)
        why = ", the whole answer came back" if answer.answer.is_exact else ", with a warning" if free else ""
        about = f"{cpu / exact:.2f} of exact, {answer.answer.figures.read:,} rows looked at{why}"
        bar = None if free else OVER * fraction * exact + SLACK
        told.measures.append(Measure(f"{cell}: {fraction:g}", cpu, "CPU s", bar, most=True, about=about))
        row = {
            "shape": cell,
            "contestant": f"{fraction:g}",
            "cpu": cpu,
            "exact": exact,
            "whole": answer.answer.is_exact,
        }
        if fraction in compared and not answer.answer.is_exact:
            share, used = _fitted(asked, cpu, exact)
            row |= {"their cpu": used}
            if used <= NEAR * cpu:  # elsewhere reading alone takes it longer
                ours, theirs = _errors(asked, fraction, share)
                told.ratios.append(theirs / ours)
                row |= {"error": ours, "error, rows by coin": theirs}
        told.rows.append(row)


def _answered(asked: _Asked, fraction: float | None, seed: int = 0) -> Any:
    if fraction is None:
        return asked.db.sql(asked.text).to_arrow()
    answer = asked.db.sql(asked.text, budget=fraction, seed=seed, costs="machine")
    answer.to_arrow()
    return answer


def _timed(run: Callable[[], Any]) -> tuple[float, Any]:
    began = time.process_time()
    found = run()
    return time.process_time() - began, found


def _fitted(asked: _Asked, cpu: float, exact: float) -> tuple[float, float]:
    """(the share of rows drawn by coin with which exact SQL takes that CPU, what it takes with nearly as many)."""
    share, used = min(1.0, cpu / exact), 0.0
    for seed in range(FITTED):
        used = median(_timed(partial(_by_coin, asked, share, seed))[0] for _ in range(3))
        share = min(1.0, share * cpu / used)
    return share, used


def _errors(asked: _Asked, fraction: float, share: float) -> tuple[float, float]:
    """(our error, that of exact SQL over such a share of the rows)."""
    truth = _by_group(_answered(asked, None))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours = [_off(truth, _by_group(_answered(asked, fraction, seed).to_arrow())) for seed in range(SEEDS)]
    theirs = [_off(truth, _by_coin(asked, share, seed)) for seed in range(SEEDS)]
    return float(np.sqrt(np.mean(ours))), float(np.sqrt(np.mean(theirs)))


def _by_coin(asked: _Asked, share: float, seed: int) -> dict[Any, float]:
    table = asked.table.select(
        ["ts", *(name for name in ("k", "v", "p", "g", "t") if re.search(rf"\b{name}\b", asked.text))]
    )
    at = np.flatnonzero(np.random.default_rng(seed).random(len(table)) < share)
    found = _by_group(Database().register("s", table.take(pa.array(at)), time="ts").sql(asked.text).to_arrow())
    times = 1.0 if "avg" in asked.text else 1.0 / share
    return {group: value * times for group, value in found.items()}


def _by_group(table: pa.Table) -> dict[Any, float]:
    groups = table.column(0).to_pylist() if table.num_columns > 1 else [None]
    return dict(zip(groups, table.column("x").to_pylist(), strict=True))


def _off(truth: dict[Any, float], found: dict[Any, float]) -> float:
    """The mean squared relative error over the groups; one that is missing is off by all of it."""
    return float(np.mean([(found.get(group, 0.0) / value - 1.0) ** 2 for group, value in truth.items()]))
