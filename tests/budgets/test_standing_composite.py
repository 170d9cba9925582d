"""Standing joins WITH PREFERENCE on several equal columns go by one key of all of them; a look at every pair judges."""

from __future__ import annotations

import datetime
import decimal
import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import nile
from nile.execution.envelopes import content, packed
from nile.execution.live.approximate.join import ApproximateSubscription
from nile.execution.options import Options
from nile.execution.statement.builder import read_query
from nile.operators.inputs.composing import put_together, puts_together
from nile.summaries.envelope import unpack

WINDOW = 20
DAY = datetime.date(2026, 1, 1)
SCHEMA = pa.schema(
    [
        ("at", pa.float64()), ("n", pa.int64()), ("x", pa.int64()), ("y", pa.string()), ("z", pa.float64()),
        ("d", pa.date32()), ("m", pa.decimal128(9, 2)), ("c", pa.dictionary(pa.int32(), pa.string())),
    ]
)  # fmt: skip


def rows(seed: int, n: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    some = [[None if at == 0 else int(at) for at in rng.integers(0, 5, n)] for _ in range(6)]
    texts = ["", "a", "ab", "b", "\0"]
    return pa.table(
        [
            np.sort(rng.integers(0, 400, n)).astype(float),
            range(n),
            some[0],
            [None if at is None else texts[at] for at in some[1]],
            [None if at is None else [0.0, -0.0, float("nan"), 1.5, 2.0][at] for at in some[2]],
            [None if at is None else DAY + datetime.timedelta(at) for at in some[3]],
            pa.array([None if at is None else decimal.Decimal(at) for at in some[4]], pa.decimal128(9, 2)),
            pa.array([None if at is None else texts[at] for at in some[5]]).dictionary_encode(),
        ],
        schema=SCHEMA,
    )


def equal(one: Any, other: Any) -> bool:
    if one is None or other is None:
        return False
    return one == other or (one != one and other != other)  # as keys, no number is equal to itself


def expected(tables: list[pa.Table], on: list[str]) -> set[tuple[int, ...]]:
    held = [table.to_pylist() for table in tables]
    found = {(r["n"],): [r] for r in held[0]}
    for further in held[1:]:
        found = {
            (*which, r["n"]): [*taken, r]
            for which, taken in found.items()
            for r in further
            if all(equal(taken[0][name], r[name]) for name in on)
            and max(e["at"] for e in [*taken, r]) - min(e["at"] for e in [*taken, r]) <= WINDOW
        }
    return set(found)


def gone_on(db: nile.Database, standing: Any, text: str, budget: float) -> Any:
    raw = packed("standing query", standing.capture())
    standing.detach()
    made = ApproximateSubscription(
        db._names, read_query(text, db._names), Options.of({"budget": budget}), db._live.streams(), db._live.commits,
        None, content(unpack(raw)),
    )  # fmt: skip
    db._live.standing.add(made)
    assert packed("standing query", made.capture()) == raw
    return made


def asked(tables: list[pa.Table], on: list[str], preference: str, budget: float, *, stops: bool = False) -> Any:
    """(rows found, figures) of a standing join pushed in pieces; stops: it goes on from its state before each."""
    names = [f"s{k}" for k in range(len(tables))]
    equalities = " AND ".join(f"s0.{name} = {other}.{name}" for other in names[1:] for name in on)
    told = ", ".join(f"{name}.n AS n{k}" for k, name in enumerate(names))
    text = f"SELECT {told} FROM {', '.join(names)} WHERE {equalities} WITH PREFERENCE {preference} WINDOW '{WINDOW} s'"
    with nile.connect() as db:
        for name in names:
            db.stream(name, SCHEMA, time="at")
        standing = db.subscribe(
            f"SELECT {told} FROM {', '.join(names)} WHERE {equalities} "
            f"WITH PREFERENCE {preference} WINDOW '{WINDOW} s'", budget=budget,
        )  # fmt: skip
        for low, high in itertools.pairwise(np.linspace(0, 400, 8)):
            standing = gone_on(db, standing, text, budget) if stops else standing
            for name, table in zip(names, tables, strict=True):
                at = table["at"].to_numpy()
                db.push(name, table.filter(pa.array((at >= low) & ((at < high) | (high == 400)))))
        db.advance(1000.0)
        found = [row for batch in standing.poll() for row in batch.to_pylist()]
        figures = standing.figures
    return [tuple(row[f"n{k}"] for k in range(len(tables))) for row in found], figures


@pytest.mark.parametrize("preference", ["desc", "weighted", "asc"])
@pytest.mark.parametrize(
    "on", [["x", "y"], ["y", "x"], ["y", "c"], ["z", "d"], ["m", "x", "z"], ["c", "d"]], ids=" and ".join
)
def test_a_whole_answer_is_every_pair(on: list[str], preference: str) -> None:
    tables = [rows(1, 160), rows(2, 140)]
    want = expected(tables, on)
    found, _ = asked(tables, on, preference, 1.0)
    assert want
    assert len(found) == len(set(found))
    assert set(found) <= want
    assert preference == "asc" or set(found) == want


@pytest.mark.parametrize("preference", ["desc", "weighted"])
def test_three_streams_too(preference: str) -> None:
    tables = [rows(seed, 90) for seed in (3, 4, 5)]
    found, _ = asked(tables, ["x", "y"], preference, 1.0)
    assert sorted(found) == sorted(expected(tables, ["x", "y"]))


@pytest.mark.parametrize("preference", ["desc", "weighted", "asc"])
@pytest.mark.parametrize("streams", [2, 3])
def test_one_that_goes_on_finds_what_it_would_have_found(preference: str, streams: int) -> None:
    tables = [rows(seed, 150) for seed in range(6, 6 + streams)]
    whole, figures = asked(tables, ["x", "y"], preference, 0.4)
    again, same = asked(tables, ["x", "y"], preference, 0.4, stops=True)
    assert whole == again
    assert figures == same


def test_it_is_the_join_of_two_streams_and_pays_for_no_pair_of_one_column() -> None:
    tables = [rows(6, 200), rows(7, 200)]
    one, both, key = expected(tables, ["x"]), expected(tables, ["x", "y"]), "x"
    _, alone = asked(tables, [key], "desc", 1.0)
    _, figures = asked(tables, ["x", "y"], "desc", 1.0)
    assert len(both) * 3 < len(one)
    assert figures.exact_cost < alone.exact_cost


def test_keys_of_the_same_columns_are_the_same_bytes_in_every_batch() -> None:
    table = rows(8, 300)
    whole = put_together([table[name].combine_chunks() for name in ("x", "y", "m", "c")])
    parts = [table.slice(k, 41) for k in range(0, 300, 41)]
    assert whole.to_pylist() == [
        key
        for part in parts
        for key in put_together([part[name].combine_chunks() for name in ("x", "y", "m", "c")]).to_pylist()
    ]
    keys: dict[Any, Any] = {}
    for row, key in zip(table.to_pylist(), whole.to_pylist(), strict=True):
        values = tuple(row[name] for name in ("x", "y", "m", "c"))
        assert (key is None) == (None in values)
        if key is not None:
            assert keys.setdefault(key, values) == values
            assert keys.setdefault(values, key) == key


def test_kinds_that_only_a_condition_compares_are_not_put_together() -> None:
    assert puts_together([(pa.int32(), pa.int64()), (pa.string(), pa.dictionary(pa.int8(), pa.large_string()))])
    assert not puts_together([(pa.int32(), pa.int64()), (pa.decimal128(9, 2), pa.float64())])
