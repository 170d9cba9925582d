"""The least time that a pass over the input takes is told before it is read, whatever is asked."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import nile
from nile.operators.drive import clock
from nile.operators.drive.clock import Clock
from nile.operators.strategies.least import INSTEAD, refuse_below_a_pass
from nile.preferences.budget import Budget
from nile.streams.manager import StreamManager
from nile.summaries.errors import BudgetError

N = 20_000
ASKED = {
    "pair": ("SELECT a.v FROM a, b WHERE a.k = b.k WINDOW '9 s' WITH PREFERENCE {} a.k", 2),
    "condition": ("SELECT a.v FROM a, b WHERE a.k = b.k AND a.v < b.v WINDOW '9 s' WITH PREFERENCE {} a.k", 2),
    "three": ("SELECT a.v FROM a, b, c WHERE a.k = b.k AND b.k = c.k WINDOW '9 s' WITH PREFERENCE {} a.k", 3),
    "self": ("SELECT x.v FROM a x, a y WHERE x.k = y.k WINDOW '9 s' WITH PREFERENCE {} x.k", 2),
    "selection": ("SELECT * FROM a WHERE k < 3 WITH PREFERENCE {} k", 1),
    "of a join": ("SELECT count(*) AS n FROM a, b WHERE a.k = b.k WINDOW '9 s' WITH PREFERENCE {} a.k", 2),
}
AGGREGATES = ("SELECT count(*) AS n, avg(v) AS m FROM a", "SELECT k, sum(v) AS s FROM a WHERE v < .5 GROUP BY k")
SHORT = (Budget(seconds=1e-6), Budget(deadline=1e-6))


def tables(n: int = N) -> dict[str, pa.Table]:
    made = {}
    for seed, name in enumerate("abc"):
        rng = np.random.default_rng(seed)
        made[name] = pa.table({"t": np.arange(n) * 1.0, "k": rng.integers(0, 50, n), "v": rng.random(n)})
    return made


def database(make: Callable[[str, pa.Table], Any]) -> nile.Database:
    db = nile.connect()
    for name, table in tables().items():
        db.register(name, make(name, table), time="t")
    return db


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """No stream can be read."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("it was read")

    monkeypatch.setattr(StreamManager, "whole", refuse)
    monkeypatch.setattr(StreamManager, "batches", refuse)


def in_memory(_: str, table: pa.Table) -> Any:
    return table


def refused(db: nile.Database, text: str, budget: Budget, tuples: int) -> float:
    with pytest.raises(BudgetError) as told:
        db.sql(text, budget=budget, costs="machine").to_arrow()
    found = re.fullmatch(
        rf"budget: needed at least (\S+) seconds to pass over {tuples:,} tuples and find anything; got {budget}; "
        rf"allow as much({INSTEAD})?",
        str(told.value),
    )
    assert found, str(told.value)
    return float(found[1])


@pytest.mark.usefixtures("unread")
@pytest.mark.parametrize("preference", ["desc", "asc", "weighted"])
@pytest.mark.parametrize("kind", ASKED)
def test_a_budget_below_a_pass_is_refused_before_anything_is_read(kind: str, preference: str, tmp_path: Path) -> None:
    def in_file(name: str, table: pa.Table) -> Any:
        pq.write_table(table, tmp_path / f"{name}.parquet")
        return str(tmp_path / f"{name}.parquet")

    text, streams = ASKED[kind]
    for budget in SHORT:
        least = [refused(database(make), text.format(preference), budget, streams * N) for make in (in_memory, in_file)]
        assert 1e-5 < least[0] < least[1] < 0.2  # files cost more to read


@pytest.mark.usefixtures("unread")
@pytest.mark.parametrize("text", AGGREGATES)
def test_so_is_an_aggregate(text: str) -> None:
    for budget in SHORT:
        assert 1e-5 < refused(database(in_memory), text, budget, N) < 0.2


@pytest.mark.usefixtures("unread")
def test_time_a_tuple_is_told_in_all() -> None:
    text, streams = ASKED["three"]
    refused(database(in_memory), text.format("desc"), Budget(seconds_per_tuple=1e-9), streams * N)
    with pytest.raises(AssertionError, match="it was read"):
        database(in_memory).sql(text.format("desc"), budget=Budget(seconds_per_tuple=1e-6)).to_arrow()


def rows(_: str, table: pa.Table) -> Any:
    """A source that does not say how many there are."""

    def batches() -> Iterator[pa.RecordBatch]:
        yield from table.to_batches()

    return batches


@pytest.mark.parametrize("preference", ["desc", "asc", "weighted"])
@pytest.mark.parametrize("kind", ["condition", "three", "selection"])
def test_what_cannot_be_counted_before_is_refused_once_it_is_read(kind: str, preference: str) -> None:
    text, streams = ASKED[kind]
    for budget in SHORT:
        assert refused(database(rows), text.format(preference), budget, streams * N) > 1e-5


def test_of_a_stream_whose_own_condition_leaves_rows_unread_nothing_is_told() -> None:
    db = nile.connect()
    db.register("a", tables()["a"], time="t", where="k < 3")
    refuse_below_a_pass(SHORT[0], db._names, [("a", "k")], "selection")
    with pytest.raises(BudgetError, match="20,000 tuples"):
        refuse_below_a_pass(SHORT[0], database(in_memory)._names, [("a", "k")], "selection")
    refuse_below_a_pass(SHORT[0], database(in_memory)._names, [("a", "k")], "keys")
    refuse_below_a_pass(Budget(0.1), database(in_memory)._names, [("a", "k")], "selection")


@pytest.mark.parametrize("text", [AGGREGATES[1], ASKED["selection"][0].format("desc")])
def test_what_loading_took_of_a_deadline_is_told_by_itself(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    db = database(in_memory)
    monkeypatch.setattr(Clock, "elapsed", property(lambda self: 6e9))
    for loading, told in (
        (5e9, r"needed at least 1\.\d seconds .*, and 5 for loading code, .*; got 5.5 .*; ask again, or allow as much"),
        (0.0, r"needed at least 7\.\d seconds .* find anything; got 5.5 .*; allow as much"),
    ):
        monkeypatch.setattr(Clock, "loading", property(lambda self, ns=loading: ns))
        with pytest.raises(BudgetError, match=told):
            db.sql(text, budget=Budget(deadline=5.5), costs="machine").to_arrow()


def test_loading_tells_nothing_of_how_dear_work_is(monkeypatch: pytest.MonkeyPatch) -> None:
    now, loaded = [0], [0]
    monkeypatch.setattr(clock, "loading_ns", lambda *, wall=False: loaded[0])
    given: Any = {"cpu": lambda: now[0] - loaded[0], "wall": lambda: now[0], "waited": lambda: 0, "crowd": lambda: 1.0}
    for budget, loading in ((Budget(deadline=1.0), 900), (Budget(seconds=1.0), 0)):
        now[0] = loaded[0] = 0
        one = Clock(budget, **given)
        now[0], loaded[0] = 1_000, 900
        assert one.loading == loading
        assert one.worked == 100
        assert one.elapsed == 1_000 - (900 - loading)
