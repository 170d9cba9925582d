"""What a standing query holds is what its windows hold, however long its streams; keys without end are refused."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import nile
from nile.execution.live import subscriptions

SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.int64()), ("v", pa.int64())])
WINDOW = 500
QUERIES = (
    "SELECT a.v, b.v AS w FROM a LEFT JOIN b ON a.k = b.k",
    "SELECT a.v FROM a ANTI JOIN b ON a.k = b.k",
    "SELECT k, v FROM a ORDER BY v DESC, ts LIMIT 10",
    "SELECT k, v, lag(v) OVER (PARTITION BY k ORDER BY ts) AS before FROM a",
    "SELECT t.k, t.v FROM (SELECT DISTINCT ON (k) k, v FROM a ORDER BY k, ts DESC) AS t",
    "SELECT a.k, (SELECT max(b.v) FROM b WHERE b.k = a.k) AS most FROM a",
    "SELECT k, count(*) AS n FROM a GROUP BY k HAVING k IN (SELECT k FROM b)",
)


def rows(begin: int, count: int) -> dict[str, np.ndarray]:
    ts = np.arange(begin, begin + count)
    return {"ts": ts, "k": ts * 2_654_435_761 % 997, "v": ts * 40_503 % 65_536}


@pytest.mark.parametrize("query", QUERIES)
def test_the_state_of_a_standing_query_does_not_grow_with_its_streams(query: str) -> None:
    held = []
    with nile.connect() as db:
        for name in ("a", "b"):
            db.stream(name, SCHEMA, time="ts", keep="1 s")
        standing = db.subscribe(f"{query} WINDOW {WINDOW}", emit="changes")
        for begin in range(0, 24 * WINDOW, WINDOW // 2):
            for name in ("a", "b"):
                db.push(name, rows(begin, WINDOW // 2))
            standing.poll()
            held.append(standing.memory)
    assert max(held[12:]) <= max(held[4:12])


@pytest.mark.parametrize(("memory", "refused"), [("2MB", True), ("64MB", False)])
def test_state_follows_the_memory_that_a_store_was_opened_with(
    memory: str, refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_module("nile.engine.connect"), "_LEAST_MEMORY", 1 << 20)
    monkeypatch.setattr(subscriptions, "_LOOK_EVERY", 10_000)
    with nile.connect(tmp_path / "store", memory=memory) as db:
        db.stream("a", SCHEMA, time="ts", keep="1 s")
        db.subscribe("SELECT k, count(*) AS n FROM a GROUP BY k", name="q")

        def push_on() -> None:
            for begin in range(0, 100_000, 10_000):
                some = rows(begin, 10_000)
                db.push("a", {**some, "k": some["ts"]})

        if refused:
            with pytest.raises(nile.Overloaded, match="by the memory= that the database was opened with"):
                push_on()
        else:
            push_on()


def test_a_partition_with_keys_without_end_is_refused_before_memory_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "memory_bytes", lambda: 8_000_000)
    monkeypatch.setattr(subscriptions, "_LOOK_EVERY", 1_000)
    pushed = 0
    with nile.connect() as db:
        db.stream("a", SCHEMA, time="ts", keep="1 s")
        db.subscribe("SELECT count(*) AS n FROM a [PARTITION BY k ROWS 10]", lambda _: None)

        def push_on() -> None:
            nonlocal pushed
            for pushed in range(0, 1_000_000, 1_000):
                some = rows(pushed, 1_000)
                db.push("a", {**some, "k": some["ts"]})

        with pytest.raises(nile.Overloaded, match="of state"):
            push_on()
    assert 1_000 < pushed < 100_000
