"""Keys of several columns: a list in `on`, left_on and right_on, and the same in SQL; a look at every pair judges."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import nile

WINDOW = 20
Pairs = set[tuple[int, int]]


def table(seed: int, rows: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    shops = [None if at == 0 else f"s{at}" for at in rng.integers(0, 6, rows)]
    items = rng.integers(0, 8, rows)
    return pa.table(
        {"t": np.sort(rng.integers(0, 500, rows)), "shop": shops, "item": items, "article": items, "n": range(rows)}
    )


@pytest.fixture(scope="module")
def db() -> nile.Database:
    return nile.connect().register("a", table(1, 300), time="t").register("b", table(2, 200), time="t")


@pytest.fixture(scope="module")
def expected() -> Pairs:
    return {
        (x["n"], y["n"])
        for x in table(1, 300).to_pylist()
        for y in table(2, 200).to_pylist()
        if x["shop"] is not None and (x["shop"], x["item"]) == (y["shop"], y["item"]) and abs(x["t"] - y["t"]) <= WINDOW
    }


def pairs(answer: Any) -> Pairs:
    rows = answer.to_arrow()
    return set(zip(rows["left_ordinal"].to_pylist(), rows["right_ordinal"].to_pylist(), strict=True))


@pytest.mark.parametrize(
    "key",
    [
        {"on": ["shop", "item"]},
        {"on": ["item", "shop"]},
        {"left_on": ["shop", "item"], "right_on": ["shop", "article"]},
        {"on": "shop", "where": "a.item = b.item"},
        {"on": ["shop", "item"], "where": "a.n >= 0 OR b.n >= 0"},
    ],
    ids=str,
)
def test_a_list_of_columns_is_one_key(db: nile.Database, expected: Pairs, key: dict[str, Any]) -> None:
    query = db.join("a", "b", window=WINDOW, **key)
    assert pairs(query.run()) == expected
    for preference in ("desc", "weighted", "asc"):
        found = pairs(query.prefer(preference).run(0.5))
        assert found <= expected
        assert found or preference == "asc"
    assert pairs(query.prefer("desc").run(1.0)) == expected


def test_sql_says_the_same(db: nile.Database, expected: Pairs) -> None:
    text = "SELECT a.n AS x, b.n AS y FROM a, b WHERE a.shop = b.shop AND a.item = b.item"
    for clause, whole in (
        ("", True),
        (" WITH PREFERENCE desc a.shop BUDGET 100 %", True),
        (" WITH PREFERENCE desc a.shop BUDGET 50 %", False),
    ):
        found = {(row["x"], row["y"]) for row in db.sql(f"{text}{clause} WINDOW {WINDOW}").to_arrow().to_pylist()}
        assert found == expected if whole else found < expected


def test_columns_that_are_called_differently_are_named_on_each_side(db: nile.Database) -> None:
    same = pairs(db.join("a", "b", on="item", window=WINDOW).run())
    assert pairs(db.join("a", "b", left_on="item", right_on="article", window=WINDOW).run()) == same
    assert pairs(db.join("a", "b", on=("item", "article"), window=WINDOW).run()) == same
    assert pairs(db.join("a", "b", on=["item"], window=WINDOW).run()) == same


def test_a_stream_joined_with_itself_and_three_streams_take_lists_too(db: nile.Database) -> None:
    rows = table(1, 300).to_pylist()
    alike = [
        (x, y) for x in rows for y in rows
        if x["shop"] is not None and (x["shop"], x["item"]) == (y["shop"], y["item"]) and abs(x["t"] - y["t"]) <= 5
    ]  # fmt: skip
    assert db.join("a", "a", on=["shop", "item"], window=5).run().to_arrow().num_rows == len(alike)
    three = [
        None for x, y in alike for z in table(2, 200).to_pylist()
        if (x["shop"], x["item"]) == (z["shop"], z["item"]) and abs(x["t"] - z["t"]) <= 5 and abs(y["t"] - z["t"]) <= 5
    ]  # fmt: skip
    query = db.join("a AS x", "a AS y", "b", on=["shop", "item"], window=5)
    assert query.run().to_arrow().num_rows == len(three)


@pytest.mark.parametrize(
    ("key", "error", "told"),
    [
        ({}, nile.ConfigError, "needed on="),
        ({"left_on": "shop"}, nile.ConfigError, "with as many columns"),
        ({"on": "shop", "left_on": "shop", "right_on": "shop"}, nile.ConfigError, "got both"),
        ({"on": []}, nile.ConfigError, "a list of columns that all streams have"),
        ({"on": ("shop", "item", "n")}, nile.ConfigError, "a tuple with one for each of 2 streams"),
        ({"on": ["shop", "items"]}, nile.UnknownColumn, "did you mean 'item'"),
        ({"on": ["shop", "n"], "left_on": None}, None, ""),
    ],
    ids=str,
)
def test_keys_that_cannot_be_meant_are_refused(db: nile.Database, key: dict[str, Any], error: Any, told: str) -> None:
    if error is None:
        db.join("a", "b", **key)
        return
    with pytest.raises(error, match=told):
        db.join("a", "b", **key)
