"""A stream joined with itself: SQL's meaning, one reading, whatever the method."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from judge import fresh_duckdb

import nile
from nile.operators.common.plan import METHODS
from nile.summaries.errors import ConfigError

ROWS = pa.table({
    "i": range(7), "at": [0, 0, 3, 5, 5, 9, 20], "k": ["a", "a", "b", "a", None, "b", "a"],
    "other": ["b", "a", "a", None, "a", "b", "a"], "x": [1.0, 2.0, 3.0, float("nan"), 4.0, None, 5.0],
})  # fmt: skip


def rows_of(answer: nile.JoinAnswer | nile.MultiwayAnswer) -> list[tuple[int, ...]]:
    table = answer.expand()
    names = [name for name in table.schema.names if name.endswith("_ordinal")]
    return sorted(zip(*[table[name].to_pylist() for name in names], strict=True))


def in_duckdb(aliases: list[str], where: str, window: int, keys: list[str] | None = None) -> list[tuple[int, ...]]:
    keys = keys or ["k"] * len(aliases)
    duck = fresh_duckdb()
    duck.register("s", ROWS)
    apart = [f"abs({a}.at - {b}.at) <= {window}" for a, b in itertools.combinations(aliases, 2)]
    equal = [f"{aliases[0]}.{keys[0]} = {alias}.{key}" for alias, key in zip(aliases, keys, strict=True)]
    wanted = ", ".join(f"{alias}.i" for alias in aliases)
    tables = ", ".join(f"s {alias}" for alias in aliases)
    everything = " and ".join([*apart, *equal, f"({where})"])
    return sorted(duck.execute(f"select {wanted} from {tables} where {everything}").fetchall())


@pytest.mark.parametrize("window", [4, 30])
def test_all_ordered_pairs_and_every_tuple_with_itself_unless_a_condition_removes_them(window: int) -> None:
    db = nile.connect().register("s", ROWS, time="at")
    plain = rows_of(db.join("s", "s", on="k", window=window).run())
    assert plain == in_duckdb(["a", "b"], "true", window)
    assert (0, 0) in plain
    assert rows_of(db.join("s AS a", "s b", on="k", window=window).run()) == plain
    for where in ("a.i <> b.i", "a.i < b.i", "a.x < b.x or a.x is null", "a.i > 1 and b.x >= 2"):
        query = db.join("s AS a", "s AS b", on="k", window=window, where=where)
        assert rows_of(query.run()) == in_duckdb(["a", "b"], where, window)
    three = db.join("s AS a", "s AS b", "s AS c", on="k", window=window, where="a.i < b.i and b.i < c.i")
    assert rows_of(three.run()) == in_duckdb(["a", "b", "c"], "a.i < b.i and b.i < c.i", window)


def test_a_stream_joins_itself_on_two_of_its_columns() -> None:
    db = nile.connect().register("s", ROWS, time="at")
    expected = in_duckdb(["a", "b"], "true", 30, ["k", "other"])
    assert rows_of(db.join("s", "s", on=("k", "other"), window=30).run()) == expected
    query = db.join("s AS a", "s AS b", on=("k", "other"), window=30, where="a.i <> b.i")
    assert rows_of(query.run()) == in_duckdb(["a", "b"], "a.i <> b.i", 30, ["k", "other"])


def test_a_stream_that_joins_itself_is_read_once() -> None:
    readings = 0

    def source() -> Iterator[pa.RecordBatch]:
        nonlocal readings
        readings += 1
        yield from ROWS.to_batches()

    db = nile.connect().register("s", source, time="at")
    rows_of(db.join("s", "s", on=("k", "other"), window=30).run())
    first = readings
    answer = db.join("s AS a", "s AS b", "s AS c", on="k", window=30, where="a.x < b.x").run()
    rows_of(answer)
    assert readings == first + 1
    assert {name: one.tuples_in for name, one in answer.accounting.items()} == {"a": 7, "b": 7, "c": 7}
    # A reader gives its rows once, and that is enough.
    once = nile.connect().register("s", ROWS.to_reader(), time="at")
    assert len(rows_of(once.join("s AS a", "s AS b", on="k", window="1 ms", where="a.i <= b.i").run())) == 7


def test_every_method_and_any_budget_keep_to_the_pairs_of_a_self_join() -> None:
    rng = np.random.default_rng(3)
    table = pa.table({"at": np.cumsum(rng.integers(0, 2, 300)), "k": rng.integers(0, 20, 300)})
    db = nile.connect().register("s", table, time="at")
    truth = set(rows_of(db.join("s", "s", on="k", window=20).run()))
    assert {(i, i) for i in range(300)} <= truth
    assert {(j, i) for i, j in truth} == truth
    for method in METHODS:
        query = db.join("s", "s", on="k", window=20).prefer("desc").using(method=method)
        found = rows_of(query.run(budget=0.4))
        assert len(found) == len(set(found))
        assert set(found) <= truth
    for method in ("nile", "hash-drop"):
        query = db.join("s AS a", "s AS b", on="k", window=20, where="a.at < b.at").prefer("weighted")
        found = rows_of(query.using(method=method).run(budget=0.4))
        assert len(found) == len(set(found)) > 0
        assert set(found) <= {(i, j) for i, j in truth if table["at"][i].as_py() < table["at"][j].as_py()}


def test_a_stream_named_twice_under_a_condition_needs_aliases() -> None:
    db = nile.connect().register("s", ROWS, time="at")
    with pytest.raises(ConfigError, match="s AS a"):
        db.join("s", "s", on="k", where="x > 3")
