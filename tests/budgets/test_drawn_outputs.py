"""Samples of so many outputs, of streams that are played back and of range records: drawn evenly from all."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import nile
from nile.preferences.budget import Budget

SHAPES = {"pair": ("ab", None), "condition": ("ab", "a.v < b.v"), "three": ("abc", None)}
DEVIATIONS = 4.0


def database(n: int = 250) -> nile.Database:
    db = nile.connect()
    for seed, name in enumerate("abc"):
        rng = np.random.default_rng(seed)
        given = {"t": np.sort(rng.integers(0, n, n)) * 1.0, "k": rng.zipf(1.4, n) % 9, "v": rng.random(n)}
        db.register(name, pa.table(given), time="t")
    return db


def outputs_of(answer: Any, rows: list[pa.Table], where: str | None) -> list[tuple[int, ...]]:
    """All outputs by their places, from the definition, at the times that the streams are played back at."""
    times, keys = [one.ts for one in answer.streams], [each["k"].to_numpy() for each in rows]
    near = [
        np.arange(len(each)).reshape([-1 if k == j else 1 for j in range(len(rows))]) for k, each in enumerate(rows)
    ]
    holds = np.ones([len(each) for each in rows], bool)
    for k, j in combinations(range(len(rows)), 2):
        holds &= (keys[k][near[k]] == keys[j][near[j]]) & (abs(times[k][near[k]] - times[j][near[j]]) <= 9 * 10**9)
    if where is not None:
        holds &= rows[0]["v"].to_numpy()[near[0]] < rows[1]["v"].to_numpy()[near[1]]
    return [tuple(each) for each in np.argwhere(holds).tolist()]


@pytest.mark.parametrize("costs", ["machine", "engine"])
@pytest.mark.parametrize("replay", ["data", "exponential"])
@pytest.mark.parametrize("shape", SHAPES)
def test_of_streams_that_are_played_back_all_outputs_are_as_likely(shape: str, replay: str, costs: str) -> None:
    streams, where = SHAPES[shape]
    db, asked = database(250 if len(streams) == 2 else 90), 40
    query = db.join(*streams, on="k", window="9 s", where=where).replayed(replay, mean="500 ms")
    names = [f"{name}_ordinal" for name in (("left", "right") if len(streams) == 2 else streams)]
    rows = [db.sql(f"SELECT k, v FROM {name}").to_arrow() for name in streams]
    means, totals = [], []
    for seed in range(40):
        answer = query.prefer("weighted").using(seed=seed, costs=costs).run(Budget(outputs=asked))
        found = answer.to_arrow()
        whole = outputs_of(answer, rows, where)
        place = {each: at for at, each in enumerate(whole)}
        drawn = [place[each] for each in zip(*(found[name].to_pylist() for name in names), strict=True)]
        assert 0 < len(set(drawn)) == len(drawn) <= asked < len(whole)
        weights = found["weight"].to_numpy()
        totals.append(weights.sum() / len(whole))
        means.append(weights @ drawn / weights.sum() / (len(whole) - 1))
    for told, truth in ((means, 0.5), (totals, 1.0)):
        assert abs(np.mean(told) - truth) <= DEVIATIONS * np.std(told) / np.sqrt(len(told)) + 1e-9


@pytest.mark.parametrize("asked", [1, 25, 1_000_000])
def test_all_range_records_of_two_streams_are_as_likely(asked: int) -> None:
    query = database().join("a", "b", on="k", window="9 s").returning("ranges")
    pairs = query.run().expand().num_rows
    records = [tuple(row.values())[:6] for row in query.run().to_arrow().to_pylist()]
    place = {each: at for at, each in enumerate(records)}
    assert len(place) == len(records)
    means, totals = [], []
    for seed in range(60 if asked < len(records) else 1):
        answer = query.prefer("weighted").using(seed=seed).run(Budget(outputs=asked))
        rows = answer.to_arrow()
        drawn = [place[tuple(row.values())[:6]] for row in rows.to_pylist()]
        assert drawn == sorted(set(drawn))
        assert len(drawn) == min(asked, len(records)) == answer.budget.spent
        assert rows["weight"].to_numpy() == pytest.approx(len(records) / len(drawn))
        assert answer.estimate == nile.Estimate.exact(float(pairs))
        told = answer.expand()
        assert told.num_rows == sum(rows["pairs"].to_pylist())
        means.append(float(np.mean(drawn)))
        totals.append(told["weight"].to_numpy().sum())
    error = np.sqrt((len(records) ** 2 - 1) / 12 / (min(asked, len(records)) * len(means)))
    assert abs(np.mean(means) - (len(records) - 1) / 2) <= DEVIATIONS * error
    assert abs(np.mean(totals) - pairs) <= DEVIATIONS * np.std(totals) / np.sqrt(len(totals)) + 1e-6 * pairs


def test_a_small_sample_of_more_than_memory_holds_is_drawn() -> None:
    db, n = nile.connect(memory="30 MB"), 3_000
    for name in "ab":
        db.register(name, pa.table({"t": np.arange(n) * 1.0, "k": np.zeros(n, np.int64), "v": np.ones(n)}), time="t")
    query = db.join("a", "b", on="k", window=n, where="a.v <= b.v").prefer("weighted")
    found = query.run(Budget(outputs=20)).to_arrow()
    assert found["weight"].to_numpy() == pytest.approx(n * n / 20)
