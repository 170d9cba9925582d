"""LIMIT with a preference: the most promising pairs, best first."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import nile

WINDOW = 40


def streams(seed: int, tuples: int = 400, keys: int = 30, exponent: float = 1.1) -> dict[str, pa.Table]:
    """Two streams of Zipf keys, with ties in time and null keys."""
    rng = np.random.default_rng(seed)
    weights = 1.0 / np.arange(1, keys + 1) ** exponent
    tables = {}
    for name, size in (("a", tuples), ("b", tuples // 2)):
        key = rng.choice(keys, size, p=weights / weights.sum())
        ts = np.sort(rng.integers(0, tuples, size))
        tables[name] = pa.table({"ts": ts.astype(float), "k": pa.array(key, mask=key == 7), "n": np.arange(size)})
    return tables


def database(tables: dict[str, pa.Table]) -> nile.Database:
    db = nile.connect()
    for name, table in tables.items():
        db.register(name, table, time="ts")
    return db


def ranked(tables: dict[str, pa.Table], window: float | None, preference: str, cap: int = 4) -> list[tuple[int, int]]:
    """All pairs, best first, by brute force."""
    every = [
        (ts, side, row, key)
        for side, name in enumerate("ab")
        for row, (ts, key) in enumerate(zip(tables[name]["ts"].to_pylist(), tables[name]["k"].to_pylist(), strict=True))
    ]
    every.sort(key=lambda one: one[:3])
    out: list[tuple[int, int, int, tuple[int, int]]] = []
    for at, (ts, side, row, key) in enumerate(every):
        if key is None:
            continue
        near = [one for one in every[: at + 1] if one[3] == key and (window is None or ts - one[0] <= window)]
        partners = [one[2] for one in near if one[1] != side]
        promise = -len(partners) if preference == "desc" else len(near)
        if preference == "asc" and len(near) > cap:
            continue
        for back, other in enumerate(reversed(partners)):
            out.append((promise, at, back, (row, other) if side == 0 else (other, row)))
    return [pair for *_, pair in sorted(out)]


def pairs(table: pa.Table) -> list[tuple[int, int]]:
    return list(zip(table.column(0).to_pylist(), table.column(1).to_pylist(), strict=True))


TEXT = "SELECT a.n AS an, b.n AS bn FROM a, b WHERE a.k = b.k WITH PREFERENCE {} a.k{} LIMIT {}"


@pytest.mark.parametrize("preference", ["desc", "asc"])
@pytest.mark.parametrize("window", [WINDOW, None, 1])
@pytest.mark.parametrize("first", [1, 17, 100, 10**6])
def test_the_first_pairs_are_those_of_the_ranking_by_brute_force(preference: str, window: Any, first: int) -> None:
    tables = streams(3, tuples=200)
    db = database(tables)
    expected = ranked(tables, window, preference)
    text = TEXT.format(preference, "" if window is None else f" WINDOW {window}", first)
    assert pairs(db.sql(text).to_arrow()) == expected[:first]
    query = db.join("a", "b", on="k").within(window).prefer(preference)
    answer = query.limit(first).run()
    assert pairs(answer.to_arrow()) == expected[:first]
    assert answer.estimate == nile.Estimate.exact(float(len(expected)))
    assert answer.warnings == ()
    asked = query.run(nile.Budget(outputs=first))
    assert pairs(asked.to_arrow()) == expected[:first]
    assert asked.budget.spent == min(first, len(expected))


def test_an_offset_leaves_out_the_best_and_order_by_sorts_all_that_the_budget_buys() -> None:
    tables = streams(5)
    db = database(tables)
    expected = ranked(tables, WINDOW, "desc")
    text = TEXT.format("desc", f" WINDOW {WINDOW}", 10)
    assert pairs(db.sql(text + " OFFSET 5").to_arrow()) == expected[5:15]
    sorted_text = text.replace("LIMIT", "ORDER BY an DESC, bn LIMIT")
    assert pairs(db.sql(sorted_text).to_arrow()) == sorted(expected, key=lambda pair: (-pair[0], pair[1]))[:10]


def test_a_budget_that_buys_the_ranking_gives_the_same_and_a_smaller_one_says_so() -> None:
    tables = streams(7, tuples=4_000, keys=8)
    db = database(tables)
    query = db.join("a", "b", on="k").within(400).prefer("desc").limit(1_000)
    whole = query.run()
    best = query.run(0.3)
    assert pairs(best.to_arrow()) == pairs(whole.to_arrow())
    assert best.budget.spent <= 0.3
    assert best.warnings == ()
    poor = query.run(0.02)
    found = pairs(poor.to_arrow())
    assert len(found) <= 1_000
    assert len(set(found)) == len(found)
    assert any("these are the best of what was found" in warning for warning in poor.warnings)
    every = set(pairs(db.join("a", "b", on="k").within(400).run().to_arrow()))
    assert set(found) <= every


@pytest.mark.parametrize("preference", [None, "weighted"])
def test_without_a_ranking_a_limit_takes_what_is_found_first(preference: str | None) -> None:
    db = database(streams(9))
    query = db.join("a", "b", on="k").within(WINDOW)
    query = query if preference is None else query.prefer(preference)
    assert pairs(query.limit(12).run().to_arrow()) == pairs(query.run().to_arrow())[:12]


def test_a_limit_is_a_whole_number() -> None:
    db = database(streams(9))
    with pytest.raises(nile.ConfigError, match="limit: needed a whole number of 1 or more; got 0"):
        db.join("a", "b", on="k").prefer("desc").limit(0).run()


def test_explain_says_what_is_first() -> None:
    db = database(streams(9))
    query = db.join("a", "b", on="k").within(WINDOW).prefer("desc").limit(1_000)
    assert "the first 1,000: pairs of the tuple with the most matches first" in query.explain()
    assert query.explain(0.1).count("where the budget allows") == 1


def test_standing_queries_have_no_limit() -> None:
    db = database(streams(9))
    query = db.join("a", "b", on="k").within(WINDOW).prefer("desc").limit(10)
    with pytest.raises(nile.ConfigError, match="standing queries: needed joins without a limit"):
        db.standing([query]).run(0.5)


@pytest.mark.parametrize("named", ["a.k", "b.k", "a.half", "b.half"])
@pytest.mark.parametrize("first", ["", "LIMIT 7"])
def test_any_part_of_a_composite_key_can_be_preferred(named: str, first: str) -> None:
    tables = {
        name: table.append_column("half", pa.array(np.arange(table.num_rows) % 2))
        for name, table in streams(11).items()
    }
    db = database(tables)
    text = "SELECT a.n AS an, b.n AS bn FROM a, b WHERE a.k = b.k AND a.half = b.half {} WINDOW 40 {}"
    exact = set(pairs(db.sql(text.format("", "")).to_arrow()))
    found = pairs(db.sql(text.format(f"WITH PREFERENCE desc {named}", first)).to_arrow())
    assert len(set(found)) == len(found) == (7 if first else len(exact))
    assert set(found) <= exact


@pytest.mark.parametrize("budget", [None, 1.0])
def test_tuples_that_are_sifted_out_are_accounted_for(budget: float | None) -> None:
    n, shared = 4_000, 10
    db = nile.connect()
    for name, begin in (("a", 0), ("b", n - shared)):
        keys = pa.array(np.arange(begin, begin + n), mask=np.arange(n) == 1_000)
        db.register(name, pa.table({"ts": np.arange(n) / n, "k": keys}), time="ts")
    query = db.join("a", "b", on="k").using(costs="engine")
    figures = query.prefer("asc").run(budget).figures
    plain = query.prefer("desc").run(budget).figures
    assert figures == plain
    assert figures.outputs == shared
    assert (figures.arrivals, figures.nulls) == (2 * n, 2)
