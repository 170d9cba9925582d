"""One exact join, asked through SQL, the builder and db.join: the same rows, the same accounts, the same operator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import nile
from nile.exact.join.wjoin import TOLD
from nile.operators.join.join import PromisingJoin
from nile.summaries.hashing import KeyTable

COLUMNS = ("left_ordinal", "right_ordinal", "k", "left_ts", "right_ts")
CHOSEN = ("a.n AS left_ordinal", "b.n AS right_ordinal", "a.k", "a.ts AS left_ts", "b.ts AS right_ts")
MILLISECOND = 1_000_000


def keys_of(kind: str, codes: np.ndarray, missing: np.ndarray, side: int) -> pa.Array:
    """Keys of a kind, some null; "mixed" are of another width on each side."""
    if kind == "text":
        return pa.array([None if gone else f"item {code}" for code, gone in zip(codes, missing, strict=True)])
    kinds = {"whole": pa.int64(), "real": pa.float64(), "mixed": (pa.int32(), pa.int64())[side]}
    return pa.array(codes, mask=missing).cast(kinds[kind])


def streams(kind: str, n: int = 600, seed: int = 3) -> dict[str, pa.Table]:
    """Two streams with ties in time and null keys; n: the place of each tuple."""
    rng = np.random.default_rng(seed)
    made = {}
    for side, name in enumerate("ab"):
        ts = np.cumsum(rng.integers(0, 3, n)) * MILLISECOND
        key = keys_of(kind, rng.integers(0, 15, n), rng.random(n) < 0.1, side)
        made[name] = pa.table({"ts": pa.array(ts).view(pa.timestamp("ns")), "k": key, "n": np.arange(n)})
    return made


def database(tables: dict[str, pa.Table], **options: Any) -> nile.Database:
    db = nile.connect()
    for name, table in tables.items():
        db.register(name, table, time="ts", **options)
    return db


def asked(db: nile.Database, window: float | None) -> tuple[nile.Result, nile.Result, nile.JoinAnswer]:
    """The three ways."""
    text = f"SELECT {', '.join(CHOSEN)} FROM a, b WHERE a.k = b.k"
    built = db.query("a").join("b", on="k")
    if window is not None:
        text += f" WINDOW {window}"
        built = built.window(window)
    return db.sql(text), built.select(*CHOSEN).run(), db.join("a", "b", on="k", window=window).run()


def oracle(tables: dict[str, pa.Table], window: float | None) -> set[tuple[int, int]]:
    """Every pair, tried."""
    widest = None if window is None else round(window * 1e9)
    sides = [
        list(
            zip(
                tables[name]["ts"].cast(pa.int64()).to_pylist(),
                *(tables[name][c].to_pylist() for c in "kn"),
                strict=True,
            )
        )
        for name in "ab"
    ]
    return {
        (i, j)
        for at, key, i in sides[0]
        for other, its, j in sides[1]
        if key is not None and key == its and (widest is None or abs(at - other) <= widest)
    }


@pytest.mark.parametrize("kind", ["whole", "text", "real", "mixed"])
@pytest.mark.parametrize("window", [None, 0.001, 0.005, 0.1, 1_000])
def test_the_three_ways_give_the_same_rows_in_the_same_order(kind: str, window: float | None) -> None:
    tables = streams(kind)
    by_sql, built, joined = (answer.to_arrow() for answer in asked(database(tables), window))
    assert by_sql.equals(built)
    for name in COLUMNS:
        assert joined[name].to_pylist() == by_sql[name].to_pylist()
    assert set(zip(joined["left_ordinal"].to_pylist(), joined["right_ordinal"].to_pylist(), strict=True)) == oracle(
        tables, window
    )
    assert joined.num_rows == len(oracle(tables, window))
    assert set(joined["weight"].to_pylist()) <= {1.0}


def test_the_accounts_are_the_same_where_tuples_come_late_and_without_a_key() -> None:
    tables = streams("whole")
    order = np.random.default_rng(5).permutation(600)
    late = {name: table.take(order) for name, table in tables.items()}
    ways = asked(database(late, lateness=0.05), 0.1)
    accounts = [list(answer.accounting.values()) for answer in ways]
    assert accounts[0] == accounts[1] == accounts[2]
    assert all(side.late for side in accounts[0])
    assert len({answer.to_arrow().num_rows for answer in ways}) == 1


def test_explain_names_the_same_operator() -> None:
    db = database(streams("whole"))
    by_sql, built, _ = asked(db, 0.1)
    for told in (by_sql.explain(), built.explain(), db.join("a", "b", on="k", window=0.1).explain()):
        assert TOLD["chain"] in told.replace("\n      ", " ")


def test_an_exact_join_is_neither_summarised_nor_priced(monkeypatch: pytest.MonkeyPatch) -> None:
    db = database(streams("whole"))

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("made for an exact join")

    monkeypatch.setattr(PromisingJoin, "__init__", refuse)
    monkeypatch.setattr("nile.exact.join.chain.ExactJoin.matches", refuse)
    monkeypatch.setattr(KeyTable, "_encode_words", lambda _, column: refuse() if len(column) else None)
    answer = db.join("a", "b", on="k", window=0.1).run()
    assert answer.to_arrow().num_rows > 0
    assert answer.coverage == 1.0
    assert answer.estimate.value == answer.to_arrow().num_rows


@pytest.mark.parametrize("costs", ["engine", "memory"])
def test_the_figures_are_those_of_the_plain_probe(costs: str) -> None:
    answer = database(streams("text")).join("a", "b", on="k", window=0.1).using(costs=costs).run()
    probe = PromisingJoin(answer.plan, answer.input)
    found = list(probe.run())
    assert answer.figures == probe.figures
    pairs = answer.pairs()
    mine, theirs = (
        sorted(zip(left.tolist(), right.tolist(), strict=True))
        for left, right in (
            (pairs.left, pairs.right),
            (np.concatenate([part.left for part in found]), np.concatenate([part.right for part in found])),
        )
    )
    assert mine == theirs


def test_a_join_takes_no_more_columns_than_are_looked_at() -> None:
    db = database(streams("whole"))
    rows = db.sql("SELECT 1 AS one FROM a, b WHERE a.k = b.k AND a.n < b.n WINDOW 0.1").to_arrow()
    pairs = db.join("a", "b", on="k", window=0.1).run().pairs()
    assert rows.num_rows == int((pairs.left < pairs.right).sum())
    assert set(rows["one"].to_pylist()) == {1}
