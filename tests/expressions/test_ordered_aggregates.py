"""min, max and quantile_disc within budgets of what is no number or beyond doubles; Python's own order judges."""

from __future__ import annotations

import datetime
import decimal
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import nile

ROWS = 300
WINDOW = 40
PLACES = np.random.default_rng(1).integers(3, 59, ROWS)
DAY, MOMENT = datetime.date(2020, 1, 1), datetime.datetime(2020, 1, 1)


def values(kind: str) -> pa.Array:
    dates = [DAY + datetime.timedelta(int(at)) for at in PLACES]
    moments = [MOMENT + datetime.timedelta(seconds=int(at)) for at in PLACES]
    times = [datetime.time(1, int(at)) for at in PLACES]
    made: dict[str, Any] = {
        "text": pa.array([f"k{at:02d}" for at in PLACES]),
        "dictionary": pa.array([f"k{at:02d}" for at in PLACES]).dictionary_encode(),
        "bytes": pa.array([b"%02d" % at for at in PLACES]),
        "date": pa.array(dates),
        "date64": pa.array(dates, pa.date64()),
        "seconds": pa.array(moments, pa.timestamp("s")),
        "nanoseconds": pa.array(moments, pa.timestamp("ns")),
        "zone": pa.array(moments, pa.timestamp("us", "UTC")),
        "time": pa.array(times, pa.time64("us")),
        "boolean": pa.array(PLACES > 30),
        "decimal": pa.array([decimal.Decimal(int(at)) / 4 for at in PLACES], pa.decimal128(9, 2)),
        "beyond doubles": pa.array(PLACES + 2**60 + 1),
        "without a sign": pa.array([2**63 + 1 + int(at) for at in PLACES], pa.uint64()),
        "number": pa.array(PLACES / 3.0),
    }
    nulls = [at % 7 == 0 for at in range(ROWS)]
    return pa.array([None if null else value for null, value in zip(nulls, made[kind].to_pylist(), strict=True)],
                    made[kind].type)  # fmt: skip


KINDS = [
    "text", "dictionary", "bytes", "date", "date64", "seconds", "nanoseconds", "zone", "time", "boolean", "decimal",
    "beyond doubles", "without a sign", "number",
]  # fmt: skip


@pytest.fixture(scope="module", params=KINDS)
def table(request: pytest.FixtureRequest) -> pa.Table:
    columns = {"t": np.arange(ROWS) * 1.0, "g": PLACES % 3, "j": PLACES % 7, "v": values(request.param)}
    return pa.table(columns)


@pytest.fixture(scope="module")
def db(table: pa.Table) -> nile.Database:
    return nile.connect().register("x", table, time="t").register("y", table, time="t")


def told(held: list[Any]) -> tuple[Any, Any, Any]:
    """Least, greatest, and the first that half do not exceed."""
    ordered = sorted(value for value in held if value is not None)
    return ordered[0], ordered[-1], ordered[max(1, math.ceil(len(ordered) / 2)) - 1]


ASKED = "min({0}) AS a, max({0}) AS b, quantile_disc({0}, .5) AS c"


def by_group(answer: pa.Table) -> dict[Any, tuple[Any, Any, Any]]:
    return {row.get("g"): (row["a"], row["b"], row["c"]) for row in answer.to_pylist()}


@pytest.mark.parametrize("costs", ["machine", "engine"])
@pytest.mark.parametrize("grouped", [False, True])
def test_a_whole_budget_tells_what_the_exact_answer_does(
    db: nile.Database, table: pa.Table, grouped: bool, costs: str
) -> None:
    asked = ASKED.format("v")
    text = f"SELECT g, {asked} FROM x GROUP BY g" if grouped else f"SELECT {asked} FROM x"
    found = db.sql(f"{text} BUDGET 1.0", costs=costs).to_arrow()
    rows = table.to_pylist()
    groups = {0, 1, 2} if grouped else {None}
    assert by_group(found) == {g: told([row["v"] for row in rows if g is None or row["g"] == g]) for g in groups}
    assert found.schema == db.sql(text).to_arrow().schema


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("preference", ["weighted", "desc"])
def test_of_a_join_too(db: nile.Database, table: pa.Table, grouped: bool, preference: str) -> None:
    asked, by = ASKED.format("y.v"), " GROUP BY x.g" if grouped else ""
    more = "x.g AS g, " if grouped else ""
    text = f"SELECT {more}{asked} FROM x, y WHERE x.j = y.j{by} WITH PREFERENCE {preference} WINDOW '{WINDOW} s'"
    rows = table.to_pylist()
    held: dict[Any, list[Any]] = {}
    for one in rows:
        for other in rows:
            if one["j"] == other["j"] and abs(one["t"] - other["t"]) <= WINDOW:
                held.setdefault(one["g"] if grouped else None, []).append(other["v"])
    assert by_group(db.sql(f"{text} BUDGET 1.0").to_arrow()) == {g: told(own) for g, own in held.items()}
    part = by_group(db.sql(f"{text} BUDGET .3").to_arrow())
    everything = set(table["v"].to_pylist())
    assert part
    assert all(value is None or value in everything for found in part.values() for value in found)


def test_a_sample_tells_values_that_are_there(db: nile.Database, table: pa.Table) -> None:
    least, greatest, _ = told(table["v"].to_pylist())
    for budget in (0.05, 0.3):
        for row in db.sql(f"SELECT {ASKED.format('v')} FROM x WHERE j < 5 BUDGET {budget}").to_arrow().to_pylist():
            assert all(value is None or value in table["v"].to_pylist() for value in row.values())
            assert row["a"] is None or least <= row["a"] <= row["b"] <= greatest


@pytest.mark.parametrize("kind", ["text", "date", "zone"])
def test_the_library_tells_them_without_an_interval(kind: str) -> None:
    table = pa.table({"t": np.arange(ROWS) * 1.0, "v": values(kind)})
    with nile.connect() as db:
        db.register("x", table, time="t")
        asked = db.aggregate("x", {"a": "min(v)", "n": "count(v)"})
        (whole,), (part,) = asked.run().to_arrow().to_pylist(), asked.run(0.3).to_arrow().to_pylist()
        assert whole["a"] == told(table["v"].to_pylist())[0] == asked.run().value("a")
        assert (whole["a_low"], whole["a_high"], whole["a_certified"]) == (None, None, True)
        assert part["a"] in table["v"].to_pylist()
        assert (part["a_low"], part["a_certified"]) == (None, False)
        assert part["n_low"] <= whole["n"] <= part["n_high"]


@pytest.mark.parametrize("kind", ["without a sign", "decimal", "beyond doubles"])
def test_groups_and_different_values_are_what_they_are(kind: str) -> None:
    """Doubles hold every 2,048th of these whole numbers, and no decimal of thirty digits."""
    given = values(kind)
    if kind == "decimal":
        given = pa.array([None if v is None else v + 10**28 for v in given.to_pylist()], pa.decimal128(38, 2))
    with nile.connect() as db:
        db.register("x", pa.table({"t": np.arange(ROWS) * 1.0, "v": given}), time="t")
        db.register("y", pa.table({"t": np.arange(ROWS) * 1.0, "v": given}), time="t")
        different = {value for value in given.to_pylist() if value is not None}
        answer = db.sql("SELECT v, count(*) AS n FROM x GROUP BY v BUDGET 1.0").to_arrow()
        assert answer.schema.field("v").type == given.type
        assert dict(zip(answer["v"].to_pylist(), answer["n"].to_pylist(), strict=True)) == {
            value: given.to_pylist().count(value) for value in [*different, None]
        }
        assert db.sql("SELECT count(DISTINCT v) AS n FROM x BUDGET 1.0").fetchone() == (len(different),)
        joined = db.sql(
            "SELECT x.v AS v, count(*) AS n FROM x, y WHERE x.v = y.v GROUP BY x.v WITH PREFERENCE weighted "
            "WINDOW '10 s' BUDGET .5"
        ).to_arrow()
        assert set(joined["v"].to_pylist()) <= different


@pytest.mark.parametrize("first", ["min", "max", "sum", "avg"])
def test_an_extreme_of_whole_numbers_beyond_doubles_leaves_other_aggregates_of_them_alone(first: str) -> None:
    numbers = [1, 2**62 - 5, 2**62 - 4, 2**62 - 4]
    db = nile.connect().register("s", pa.table({"ts": [1.0, 2.0, 3.0, 4.0], "v": pa.array(numbers)}), time="ts")
    asked = {first: f"{first}(v)"} | {name: f"{name}(v)" for name in ("min", "max", "sum", "avg")}
    told = db.aggregate("s", asked).run()
    assert told.value("min") == 1
    assert told.value("max") == max(numbers)
    assert told.value("sum") == sum(numbers)
    assert told.value("avg") == sum(numbers) / 4


def least_and_most(values: list[Any]) -> tuple[Any, Any]:
    """NaN is the largest, and of equal values the first is the least, the last the most."""
    known = [value for value in values if value is not None]
    if not known:
        return None, None
    order = sorted(known, key=lambda value: (value != value, value))
    alike = [value for value in known if value == order[-1] or (value != value and order[-1] != order[-1])]
    return order[0], alike[-1]


@pytest.mark.parametrize("kind", ["double", "whole", "without a sign", "text", "date", "boolean", "decimal", "bytes"])
def test_exact_extremes_of_groups_are_pythons(kind: str) -> None:
    for seed in range(8):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(0, 60))
        at = rng.integers(-3, 3, n)
        made: dict[str, Any] = {
            "double": pa.array(rng.choice([0.0, -0.0, 1.5, -np.inf, np.inf, np.nan], n)),
            "whole": pa.array(rng.choice([-(2**63), 2**63 - 1, 0, 5], n)),
            "without a sign": pa.array(rng.choice(np.array([0, 2**64 - 1, 7], np.uint64), n)),
            "text": pa.array([f"é{k}" for k in at], pa.string()),
            "date": pa.array([DAY + datetime.timedelta(int(k)) for k in at], pa.date32()),
            "boolean": pa.array(at > 0),
            "decimal": pa.array([decimal.Decimal(int(k)) / 4 for k in at], pa.decimal128(9, 2)),
            "bytes": pa.array([bytes([k + 3]) for k in at], pa.binary()),
        }
        values = made[kind].to_pylist()
        values = [None if gone else value for gone, value in zip(rng.random(n) < 0.3, values, strict=True)]
        groups = rng.integers(0, 4, n)
        table = pa.table({"ts": np.arange(n) * 1.0, "g": groups, "v": pa.array(values, made[kind].type)})
        found = (
            nile.connect().register("s", table, time="ts").sql("SELECT g, min(v) AS l, max(v) AS h FROM s GROUP BY g")
        )
        expected = {
            int(g): least_and_most([v for v, at in zip(values, groups, strict=True) if at == g]) for g in groups
        }
        assert repr({g: (low, high) for g, low, high in found.fetchall()}) == repr(
            {g: expected[g] for g in dict.fromkeys(groups.tolist())}
        )
