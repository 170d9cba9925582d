"""Joins WITH PREFERENCE whose streams have not one window: graphs, paths and directed paths, against brute force."""

from __future__ import annotations

from collections import Counter
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from thinning import rounds, thinned

import nile
from nile.operators.inputs.pair_windows import PairWindows

SHAPES = {
    "graph": (3, ((0, 1, 20), (1, 2, 35)), False),
    "unequal": (3, ((0, 1, 20), (1, 2, 10), (0, 2, 25)), False),
    "path": (3, ((0, 1, 20), (1, 2, 35)), True),
    "directed pair": (2, ((0, 1, 20),), True),
    "four": (4, ((0, 1, 10), (1, 2, 12), (1, 3, 9)), False),
}


def streams(n: int, rows: int, seed: int, keys: int = 6) -> list[pa.Table]:
    made = []
    for number in range(n):
        draw = np.random.default_rng([seed, number])
        ts = np.sort(draw.integers(0, 4 * rows, rows)) * 1.0
        made.append(pa.table({"ts": ts, "item": draw.integers(0, keys, rows), "row": np.arange(rows)}))
    return made


def holds(shape: str, times: tuple[float, ...]) -> bool:
    """The definition."""
    _, windows, directed = SHAPES[shape]
    apart = [(times[j] - times[i], ns) for i, j, ns in windows]
    if directed:
        return all(0 <= d <= w for d, w in apart) or all(0 <= -d <= w for d, w in apart)
    return all(abs(d) <= w for d, w in apart)


def brute(shape: str, tables: list[pa.Table]) -> set[tuple[int, ...]]:
    """Every combination of rows, looked at."""
    by_key: dict[int, list[list[tuple[float, int]]]] = {}
    for at, table in enumerate(tables):
        for row in table.to_pylist():
            by_key.setdefault(row["item"], [[] for _ in tables])[at].append((row["ts"], row["row"]))
    return {
        tuple(row for _, row in each)
        for groups in by_key.values()
        for each in product(*groups)
        if holds(shape, tuple(ts for ts, _ in each))
    }


def database(tables: list[pa.Table]) -> nile.Database:
    db = nile.connect()
    for at, table in enumerate(tables):
        db.register(f"s{at}", table, time="ts")
    return db


def text(shape: str, preference: str, budget: str = "") -> str:
    n, windows, directed = SHAPES[shape]
    names = "abcd"[:n]
    select = ", ".join(f"{name}.row AS {name}" for name in names)
    from_ = ", ".join(f"s{at} AS {name}" for at, name in enumerate(names))
    where = " AND ".join(f"a.item = {name}.item" for name in names[1:])
    kept = " AND ".join(f"({names[i]}, {names[j]}) = {w}" for i, j, w in windows)
    prefers = f"WITH PREFERENCE {preference} a.item " if preference else ""
    return f"SELECT {select} FROM {from_} WHERE {where} {prefers}{'DWINDOW' if directed else 'WINDOW'} {kept} {budget}"


def found(result: Any) -> list[tuple[int, ...]]:
    table = result.to_arrow()
    kept = [name for name in table.column_names if name != "_weight"]
    return [tuple(row.values()) for row in table.select(kept).to_pylist()]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("preference", ["desc", "asc", "weighted"])
@pytest.mark.parametrize("guide", ["directory", "countsketch"])
def test_what_is_found_is_true_and_whole_at_full_budget(shape: str, preference: str, guide: str) -> None:
    tables = streams(SHAPES[shape][0], 120 if shape != "four" else 60, 3)
    db, truth = database(tables), brute(shape, tables)
    assert set(found(db.sql(text(shape, "")))) == truth
    for budget in ("BUDGET 0.05", "BUDGET 0.2", "BUDGET 0.5", "BUDGET 10 OUTPUTS", "BUDGET 20 SECONDS"):
        rows = found(db.sql(text(shape, preference, budget), guide=guide, outlier_cap=8))
        assert len(set(rows)) == len(rows)
        assert set(rows) <= truth
    if preference != "asc":
        rows = found(db.sql(text(shape, preference, "BUDGET 1.0"), guide=guide))
        assert Counter(rows) == Counter(truth)


@settings(max_examples=40, deadline=None)
@given(shape=some.sampled_from(sorted(SHAPES)), seed=some.integers(0, 1 << 30), rows=some.integers(0, 40))
def test_the_whole_answer_of_random_streams(shape: str, seed: int, rows: int) -> None:
    tables = streams(SHAPES[shape][0], rows, seed, keys=3)
    got = found(database(tables).sql(text(shape, "desc", "BUDGET 1.0")))
    assert Counter(got) == Counter(brute(shape, tables))


@pytest.mark.parametrize("shape", ["graph", "unequal", "path"])
@pytest.mark.parametrize("budget", thinned([0.5, 0.2], 2))
@pytest.mark.parametrize("seeds", rounds(100))
def test_weights_add_up_to_the_whole_on_average(shape: str, budget: float, seeds: int) -> None:
    tables = streams(3, 3_000, 4, keys=30)
    db, truth = database(tables), found(database(tables).sql(text(shape, "")))
    told = []
    for seed in range(seeds):
        result = db.sql(text(shape, "weighted", f"BUDGET {budget}"), seed=seed)
        table = result.to_arrow()
        told.append(sum(table["_weight"].to_pylist()))
    assert abs(np.mean(told) - len(truth)) < 3 * np.std(told, ddof=1) / np.sqrt(seeds)


def test_the_plan_says_what_is_looked_at() -> None:
    db = database(streams(3, 20, 5))
    told = db.sql("EXPLAIN " + text("graph", "desc", "BUDGET 0.5")).message
    assert "every two within 55 s" in told  # by the path from a over b to c
    assert "WINDOW (a, b) = '20 s' AND (b, c) = '35 s': on each candidate" in told
    with pytest.raises(nile.ConfigError, match="needed 'pairs' with windows between pairs of streams"):
        db.sql(text("graph", "desc", "BUDGET 0.5"), output="ranges").to_arrow()


@settings(max_examples=60, deadline=None)
@given(shape=some.sampled_from(sorted(SHAPES)), seed=some.integers(0, 1 << 30))
def test_windows_between_pairs_are_those_of_the_definition(shape: str, seed: int) -> None:
    n, windows, directed = SHAPES[shape]
    times = np.random.default_rng(seed).integers(0, 60, (50, n))
    kept = PairWindows(n, windows, directed).passing(times)
    assert kept.tolist() == [holds(shape, tuple(row)) for row in times.tolist()]
    assert (np.ptp(times[kept], axis=1) <= PairWindows(n, windows, directed).widest).all()
