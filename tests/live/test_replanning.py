"""A standing query changes its plan while it runs, and tells what it would have told."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import nile

WINDOW = "[RANGE '20 s']"
JOINED = f"""SELECT a.k, count(*) AS n, sum(b.x) AS total FROM a {WINDOW}, b {WINDOW}, c {WINDOW}
    WHERE a.k = b.k AND b.k = c.k AND a.x > 2 GROUP BY a.k"""
OTHER_ORDER = f"""SELECT a.k, count(*) AS n, sum(b.x) AS total FROM c {WINDOW}, b {WINDOW}, a {WINDOW}
    WHERE a.k = b.k AND b.k = c.k AND a.x > 2 GROUP BY a.k"""
PAIRS = "SELECT a.ts, a.x, b.x AS y FROM a, b WHERE a.k = b.k WINDOW '5 s'"
GROUPED = f"SELECT k, max(x) AS most FROM a {WINDOW} WHERE x < 8 GROUP BY k"
SCHEMA = pa.schema([("ts", pa.float64()), ("k", pa.int64()), ("x", pa.int64())])


def batches(seed: int) -> list[tuple[str, dict[str, Any]]]:
    rng = np.random.default_rng(seed)
    return [
        (name, {
            "ts": np.sort(rng.uniform(2.0 * i, 2.0 * i + 2, 15)),
            "k": rng.integers(0, 6, 15), "x": rng.integers(0, 9, 15),
        })
        for i in range(20)
        for name in "abc"
    ]  # fmt: skip


def opened(store: Path | None = None, **named: Any) -> nile.Database:
    db = nile.connect() if store is None else nile.connect(store, checkpoint=None)
    if not db.streams:
        for name in "abc":
            db.stream(name, SCHEMA, time="ts", **named)
    return db


def run(
    text: str, changes: dict[int, str], seed: int = 1, before: int = 0, **options: Any
) -> tuple[pa.Table, list[tuple[Any, ...]]]:
    """What a query tells while statements are run after some pushes; and of what plan it is in the end.

    before: pushes before it is asked.
    """
    db = opened()
    pushed = batches(seed)
    for name, rows in pushed[:before]:
        db.push(name, rows)
    standing = db.subscribe(text, name="q", **options)
    out = []
    for at, (name, rows) in enumerate(pushed[before:]):
        db.push(name, rows)
        if at in changes:
            db.sql(changes[at])
            out += standing.poll()
    db.advance(1_000.0)
    out += standing.poll()
    plan = db.sql("SELECT query, scheduling, algorithm FROM nile_queries").fetchall()
    return pa.Table.from_batches(out, schema=standing.schema), plan


def setting(what: str) -> str:
    return f"UPDATE nile_queries SET {what} WHERE name = 'q'"


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


@pytest.mark.parametrize("before", [0, 9])
@pytest.mark.parametrize(
    ("text", "changes", "scheduling"),
    [
        (JOINED, {30: setting("scheduling = 'tpa'")}, "tpa"),
        (JOINED, {20: setting("scheduling = 'tpa'"), 40: setting("scheduling = 'nta'")}, "nta"),
        (JOINED, {30: setting(f"query = {quoted(OTHER_ORDER)}")}, "nta"),
        (JOINED, {10: setting(f"query = {quoted(OTHER_ORDER)}, scheduling = 'tpa'"), 30: setting("query = NULL")},
         "tpa"),
        (GROUPED, {15: setting("scheduling = 'tpa'"), 16: setting("scheduling = NULL")}, "nta"),
    ],
)  # fmt: skip
def test_what_is_told_and_its_numbers_are_those_of_one_that_never_changed(
    text: str, changes: dict[int, str], scheduling: str, before: int
) -> None:
    wanted, _ = run(text, {}, before=before)
    found, plan = run(text, changes, before=before)
    assert found.num_rows > 100
    assert found.equals(wanted)
    assert plan[0][1] == scheduling


@pytest.mark.parametrize("algorithm", ["few-hash", "bew-hash"])
def test_a_window_join_changes_how_it_finds_its_pairs(algorithm: str) -> None:
    wanted, _ = run(PAIRS, {}, emit="append")
    found, plan = run(PAIRS, {25: setting(f"algorithm = '{algorithm}'")}, emit="append")
    assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, wanted.to_pylist()))
    assert plan[0][2] == algorithm


def test_input_triggered_expiry_is_told_later_and_comes_to_the_same() -> None:
    """As the definition of ITA says: what expires is told when something comes."""

    def state(told: pa.Table) -> list[str]:
        held: dict[str, int] = {}
        for row in told.to_pylist():
            key = repr((row["k"], row["n"], row["total"]))
            held[key] = held.get(key, 0) + row["_sign"]
        return sorted(key for key, count in held.items() if count)

    always, _ = run(JOINED, {}, scheduling="ita")
    assert state(run(JOINED, {30: setting("scheduling = 'ita'")})[0]) == state(always)


def test_a_store_goes_on_with_the_plan_and_the_query_is_found_as_it_was_asked(tmp_path: Path) -> None:
    wanted, _ = run(JOINED, {})
    out = []
    db = opened(tmp_path / "store")
    standing = db.subscribe(JOINED, name="q")
    for at, (name, rows) in enumerate(batches(1)):
        db.push(name, rows)
        out += standing.poll()
        if at == 20:
            db.sql(setting(f"query = {quoted(OTHER_ORDER)}, scheduling = 'tpa'"))
        if at in (25, 40):
            out += standing.poll()
            db.close()
            db = opened(tmp_path / "store")
            standing = db.subscribe(JOINED, name="q")
            ((text, scheduling),) = db.sql("SELECT query, scheduling FROM nile_queries").fetchall()
            assert scheduling == "tpa"
            assert text.index("FROM c") > 0
    db.advance(1_000.0)
    out += standing.poll()
    assert pa.Table.from_batches(out, schema=standing.schema).equals(wanted)
    db.close()


def test_one_that_shares_a_plan_goes_its_own_way_and_comes_back() -> None:
    db = opened()
    first, second = db.subscribe(GROUPED, name="q"), db.subscribe(GROUPED, name="r")
    assert len(first.sharers) == 2
    out: dict[str, list[pa.RecordBatch]] = {"q": [], "r": []}
    for at, (name, rows) in enumerate(batches(2)):
        db.push(name, rows)
        if at == 20:
            db.sql(setting("scheduling = 'tpa'"))
            assert (len(first.sharers), len(second.sharers)) == (1, 1)
        if at == 40:
            db.sql(setting("scheduling = NULL"))
        out["q"] += first.poll()
        out["r"] += second.poll()
    assert len(first.sharers) == 2
    assert pa.Table.from_batches(out["q"]).equals(pa.Table.from_batches(out["r"]))
    first.close()
    second.close()


@pytest.mark.parametrize(
    ("what", "message"),
    [
        (f"query = {quoted(JOINED.replace('a.x > 2', 'a.x > 3'))}", "another query: subscribe"),
        (f"query = {quoted(GROUPED)}", "needed a plan that outputs the columns"),
        ("query = 'SHOW STREAMS'", "needed a query; got another statement"),
        ("query = 'SELECT nope FROM a'", "nope"),
        ("scheduling = 'soon'", "scheduling: needed one of"),
        ("algorithm = 'chain'", "needed a window join that appends"),
        ("scheduling = 1", "text or NULL"),
        ("outputs = 0", "needed what can be set while it runs"),
    ],
)
def test_what_is_no_plan_of_the_query_is_refused_and_the_old_one_goes_on(what: str, message: str) -> None:
    wanted, _ = run(JOINED, {})
    db = opened()
    standing = db.subscribe(JOINED, name="q")
    out = []
    for at, (name, rows) in enumerate(batches(1)):
        db.push(name, rows)
        if at == 30:
            with pytest.raises(nile.NileError, match=message):
                db.sql(setting(what))
        out += standing.poll()
    db.advance(1_000.0)
    out += standing.poll()
    assert pa.Table.from_batches(out).equals(wanted)


def test_rows_that_are_kept_no_more_a_pause_and_an_approximate_query_refuse_a_new_plan() -> None:
    db = opened(keep="4 s")
    standing = db.subscribe(GROUPED, name="q")
    db.subscribe("SELECT a.k FROM a, b WHERE a.k = b.k WITH PREFERENCE desc a.k WINDOW '5 s' BUDGET 0.5", name="p")
    for name, rows in batches(1)[:30]:
        db.push(name, rows)
    with pytest.raises(nile.ConfigError, match="all that it has seen of 'a' kept"):
        db.sql(setting("scheduling = 'tpa'"))
    with pytest.raises(nile.ConfigError, match="needed an exact query"):
        db.sql("UPDATE nile_queries SET scheduling = 'tpa' WHERE name = 'p'")
    standing.pause()
    with pytest.raises(nile.ConfigError, match="needed one that is active"):
        db.sql(setting("scheduling = 'tpa'"))


def test_both_plans_are_remembered_in_text() -> None:
    from nile.execution.definitions import QueryDefinition

    made = QueryDefinition("SELECT x FROM a", runs=QueryDefinition("SELECT x FROM a", scheduling="tpa"))
    read = QueryDefinition.from_json(made.as_json(), "here")
    assert read.runs == made.runs
    assert read == dataclasses.replace(made, runs=None)
