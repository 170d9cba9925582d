"""Clusters, partial periodic patterns and sequences of several series: by definition, however batches are cut."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import nile
from nile.execution.statement.builder import read_query
from nile.mining.clusters import Clusterer
from nile.mining.patterns import PatternFinder
from nile.mining.sequences import SequenceFinder
from nile.sql.text import query_text

Array = np.ndarray[Any, Any]


def cuts(n: int, seed: int) -> list[list[int]]:
    return [[], list(range(1, n)), sorted(random.Random(seed).sample(range(n), min(n, 17)))]


def pieces(n: int, at: list[int]) -> list[Array]:
    return [part for part in np.split(np.arange(n), at) if len(part)]


def clustered_by_definition(values: Array, ts: Array, radius: float, half_life: float, most: int) -> list[Any]:
    """Each list in turn, with plain lists and floats."""
    clusters: list[dict[str, Any]] = []
    told, made = [], 0
    for value, time in zip(values.tolist(), ts.tolist(), strict=True):
        if not all(map(math.isfinite, value)):
            told.append((None, None, None))
            continue
        apart = [math.sqrt(sum((a - b) ** 2 for a, b in zip(value, each["centre"], strict=True))) for each in clusters]
        nearest = min(range(len(clusters)), key=apart.__getitem__, default=None)
        if nearest is not None and apart[nearest] <= radius:
            one = clusters[nearest]
            one["weight"] = one["weight"] * 2.0 ** (-(time - one["time"]) / (half_life * 1e9)) + 1.0
            one["centre"] = [c + (v - c) / one["weight"] for c, v in zip(one["centre"], value, strict=True)]
            one["time"] = time
            told.append((one["id"], apart[nearest], one["weight"]))
            continue
        made += 1
        new = {"id": made, "weight": 1.0, "centre": value, "time": time}
        if len(clusters) == most:
            faded = [(c["weight"] * 2.0 ** (-(time - c["time"]) / (half_life * 1e9)), c["id"]) for c in clusters]
            clusters[faded.index(min(faded))] = new
        else:
            clusters.append(new)
        told.append((made, None, 1.0))
    return told


@pytest.mark.parametrize(
    ("radius", "half_life", "most"), [(0.8, math.inf, 100), (0.8, 30.0, 4), (0.1, 5.0, 1), (9, 1, 7)]
)
def test_clusters_are_those_of_the_definition_however_lists_are_cut(radius: float, half_life: float, most: int) -> None:
    draw = np.random.default_rng(3)
    values = draw.normal(size=(300, 3)) * 0.2 + draw.integers(0, 3, 300)[:, None] * np.array([1.0, 2.0, 0.0])
    values[[5, 70]] = np.nan
    ts = np.cumsum(draw.integers(0, 3, 300)) * 10**9
    wanted = clustered_by_definition(values, ts, radius, half_life, most)
    for at in cuts(300, 1):
        finder, found = Clusterer(radius, half_life, most), []
        for part in pieces(300, at):
            found += finder.push(part, ts[part], values[part])
        assert [each[:2] for each in found] == list(zip(range(300), ts.tolist(), strict=True))
        for (_, _, got), expected in zip(found, wanted, strict=True):
            assert got[0] == expected[0]
            for one, other in zip(got[1:], expected[1:], strict=True):
                assert one == (None if other is None else pytest.approx(other, rel=1e-9, abs=1e-12))


def test_planted_clusters_are_found_and_forgotten() -> None:
    draw = np.random.default_rng(4)
    centres = draw.normal(size=(5, 16)) * 4
    which = draw.integers(0, 5, 4_000)
    values = centres[which] + draw.normal(size=(4_000, 16)) * 0.3
    finder = Clusterer(3.0, math.inf, 100)
    found = finder.push(np.arange(4_000), np.arange(4_000) * 10**9, values)
    pairs = Counter((row[0], k) for (_, _, row), k in zip(found, which.tolist(), strict=True))
    assert len(pairs) == 5, "each cluster holds one planted centre, and each centre is in one"
    moved = finder.push(np.arange(10), np.full(10, 10**13), values[:10] + 100)
    assert {row[0] for _, _, row in moved}.isdisjoint(range(1, 6))


def patterns_by_definition(segments: list[list[str]], least: float) -> set[tuple[str, ...]]:
    """Every pattern over these symbols that is frequent, and of which no frequent one says more."""
    places = [[*sorted({segment[k] for segment in segments}), "*"] for k in range(len(segments[0]))]
    frequent = []
    for pattern in itertools.product(*places):
        has = sum(all(p in ("*", s) for p, s in zip(pattern, segment, strict=True)) for segment in segments)
        if set(pattern) != {"*"} and has >= least * len(segments) - 1e-9:
            frequent.append(pattern)
    return {
        one
        for one in frequent
        if not any(one != other and all(a in ("*", b) for a, b in zip(one, other, strict=True)) for other in frequent)
    }


@pytest.mark.parametrize("least", [0.05, 0.3, 0.5, 0.8, 1.0])
@pytest.mark.parametrize("seed", range(8))
def test_patterns_are_those_of_the_definition(seed: int, least: float) -> None:
    draw = random.Random(seed)
    period, periods = draw.randint(2, 5), draw.randint(2, 12)
    usual = [draw.choice("abc") for _ in range(period)]
    symbols = [usual[k % period] if draw.random() < 0.6 else draw.choice("abc") for k in range(period * periods * 2)]
    told = []
    for at in cuts(len(symbols), seed):
        finder, found = PatternFinder(period, periods, least, 4_096, 1.0), []
        for part in pieces(len(symbols), at):
            found += finder.push(part, part * 10**9, [symbols[k] for k in part])
        told.append(found)
    assert told[0] == told[1] == told[2]
    for half in range(2):
        begin = half * period * periods
        segments = [symbols[k : k + period] for k in range(begin, begin + period * periods, period)]
        rows = [row for place, _, row in told[0] if place == begin + period * periods - 1]
        assert {tuple(row[1].split(" ")) for row in rows} == patterns_by_definition(segments, least)
        for since, pattern, count, share in rows:
            parts = pattern.split(" ")
            has = [all(p in ("*", s) for p, s in zip(parts, segment, strict=True)) for segment in segments]
            assert (since, count) == (begin * 10**9, sum(each != "*" for each in parts))
            assert share == pytest.approx(sum(has) / len(has))


def test_a_long_period_with_many_symbols_costs_no_more_than_what_is_told() -> None:
    """All 2^200 patterns over 200 places are frequent: one is told, for no other says as much."""
    finder = PatternFinder(200, 10, 0.5, 20, 1.0)
    ((_, _, row),) = finder.push(np.arange(2_000), np.arange(2_000), [f"s{k % 200}" for k in range(2_000)])
    assert row[1:] == (" ".join(f"s{k}" for k in range(200)), 200, 1.0)
    draw = random.Random(1)
    noisy = [f"s{k % 200}" if draw.random() < 0.6 else "x" for k in range(2_000)]
    told = PatternFinder(200, 10, 0.5, 20, 1.0).push(np.arange(2_000), np.arange(2_000), noisy)
    assert len(told) == 20


@pytest.mark.parametrize(("length", "series", "span"), [(1, 2, 5), (2, 3, 4), (3, 2, 12), (3, 1, 3)])
def test_sequences_are_told_when_so_many_series_have_them(length: int, series: int, span: int) -> None:
    draw = random.Random(length * span)
    keys = [draw.choice("pqrs") for _ in range(400)]
    symbols = [draw.choice("abc") for _ in range(400)]
    held: dict[str, list[str]] = {key: [] for key in "pqrs"}
    wanted, before = [], Counter[tuple[str, ...]]()
    for place, (key, symbol) in enumerate(zip(keys, symbols, strict=True)):
        held[key] = [*held[key], symbol][-span:]
        now = Counter[tuple[str, ...]]()
        for values in held.values():
            now.update({tuple(values[k : k + length]) for k in range(len(values) - length + 1)})
        wanted += [(key, place, " ".join(each)) for each, n in now.items() if n >= series > before[each]]
        before = now
    for at in cuts(400, 2):
        finder, found = SequenceFinder(length, series, span, 1.0), []
        for part in pieces(400, at):
            texts, of = [symbols[k] for k in part], [keys[k] for k in part]
            found += finder.push_keyed(part, part * 10**9, texts, of)
        assert [(key, place, row[1]) for key, (place, _, row) in found] == wanted
        for key, (place, _, (since, sequence, count)) in found:
            places = [k for k in range(place + 1) if keys[k] == key][-length:]
            assert (since, count) == (places[0] * 10**9, series)
            assert sequence == " ".join(symbols[k] for k in places)


QUERIES = [
    "SELECT k, cluster, distance FROM CLUSTERS (d, l, k, radius => 1.5) AS c WHERE weight > 2",
    "SELECT cluster, weight FROM CLUSTERS (d, l, radius => 1, half_life => 20, most => 5) AS c",
    "SELECT * FROM PATTERNS (d, s, k, period => 4, periods => 5, least => 0.5) AS p",
    "SELECT pattern, share FROM PATTERNS (d, v, period => 6, periods => 4, least => 0.6, width => 0.5) AS p",
    "SELECT * FROM SEQUENCES (d, s, k, length => 2, series => 2, span => 20) AS q",
    "SELECT k, sequence FROM SEQUENCES (d, v, k, length => 2, series => 2, span => 30) AS q WHERE series > 1",
]


def rows(n: int = 300) -> dict[str, Any]:
    draw = np.random.default_rng(6)
    lists = [
        None if k % 50 == 7 else draw.integers(0, 3, 2 if k % 40 == 3 else 3).astype(float).tolist() for k in range(n)
    ]
    values = np.where(np.arange(n) % 37 == 5, np.nan, np.sin(np.arange(n) * np.pi / 3) * 2)
    texts = [None if k % 29 == 4 else "abcd"[k // 2 % 4] if draw.random() < 0.9 else "x" for k in range(n)]
    return {"ts": np.arange(n), "k": [f"k{k % 2}" for k in range(n)], "v": values, "l": lists, "s": texts}


@pytest.mark.parametrize("text", QUERIES)
def test_what_stands_is_what_is_asked_at_once(text: str) -> None:
    made = rows()
    asked, live = nile.connect(), nile.connect()
    asked.register("d", made, time="ts")
    lists = pa.list_(pa.float64())
    live.stream("d", [("ts", "int64"), ("k", "string"), ("v", "double"), ("l", lists), ("s", "string")], time="ts")
    expected = asked.sql(text).to_arrow().to_pylist()
    standing = live.subscribe(text, emit="append")
    for begin in range(0, 300, 23):
        live.push("d", {name: column[begin : begin + 23] for name, column in made.items()})
    live.close()
    got = [row for batch in standing.poll() for row in batch.to_pylist()]
    assert sorted(map(repr, got)) == sorted(map(repr, expected))
    assert expected
    query = read_query(text, asked._names)
    assert read_query(query_text(query), asked._names) == query


@pytest.mark.parametrize(
    ("call", "told"),
    [
        ("CLUSTERS (d, l)", "needed radius; got none"),
        ("CLUSTERS (d, v, radius => 1)", "needed lists of numbers in 'v'; got double"),
        ("CLUSTERS (d, l, radius => 0)", "needed radius above 0"),
        ("PATTERNS (d, s, k)", "needed period; got none"),
        ("PATTERNS (d, l, period => 3)", "needed text or numbers in 'l'"),
        ("PATTERNS (d, s, period => 1)", "needed period from 2"),
        ("PATTERNS (d, s, period => 3, width => 0)", "needed width above 0"),
        ("SEQUENCES (d, s, length => 2)", "needed a key, which tells series apart; got none"),
        ("SEQUENCES (d, s, k, length => 9, span => 3)", "needed length from 1 to span"),
    ],
)
def test_calls_that_cannot_be_are_refused(call: str, told: str) -> None:
    with nile.connect() as db:
        db.register("d", rows(20), time="ts")
        with pytest.raises(nile.SqlError, match=told):
            db.sql(f"SELECT * FROM {call} AS x")
