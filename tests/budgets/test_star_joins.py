"""Budgets and preferences over streams joined with stored relations, whose rows tuples look up."""

from __future__ import annotations

import copy
import datetime as dt
import decimal
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import nile
from nile.execution.approximate.stored import StoredRows
from nile.summaries.errors import NotYet

N, KEYS = 4_000, 60
JOINED = "FROM clicks JOIN people ON user = uid"
QUERIES = [
    f"SELECT country, count(*), sum(v), avg(v * w), max(name) {JOINED} GROUP BY country",
    f"SELECT count(*), sum(w), min(name), median(w), count(DISTINCT country) {JOINED} WHERE country <> 'c1' AND w < v",
    f"SELECT upper(country) || '!' AS c, sum(v) {JOINED} WHERE name LIKE 'n1%' OR v > 2 GROUP BY 1",
    "SELECT country, count(*), count(w) FROM clicks LEFT JOIN people ON user = uid GROUP BY country",
    "SELECT country, count(*) FROM clicks LEFT JOIN people ON user = uid AND w < v GROUP BY country",
    "SELECT side, sum(v) FROM clicks JOIN people ON user = uid JOIN lands USING (country) GROUP BY side",
    "SELECT side, sum(v) FROM clicks LEFT JOIN people ON user = uid LEFT JOIN lands USING (country) GROUP BY side",
    "SELECT sum(v), count(*) FROM clicks WHERE user IN (SELECT uid FROM people WHERE w < 0.5)",
    "SELECT sum(v), count(*) FROM clicks WHERE user NOT IN (SELECT uid FROM people WHERE w < 0.5)",
    "SELECT sum(v), count(*) FROM clicks WHERE user NOT IN (SELECT gap FROM people)",
    "SELECT sum(v), count(*) FROM clicks WHERE v > 3 OR user IN (SELECT gap FROM people)",
    "SELECT sum(v), count(*) FROM clicks WHERE NOT EXISTS (SELECT * FROM people WHERE uid = user AND w < v)",
    "SELECT sum(v), count(*) FROM clicks WHERE EXISTS (SELECT * FROM bought WHERE who = user AND price > 5)",
    "SELECT sum(v) FROM clicks WHERE v > (SELECT avg(w) FROM people)",
    "SELECT sum(v), count(*) FROM clicks WHERE v > (SELECT sum(price) FROM bought WHERE who = user) / 20",
    "SELECT country, most, sum(v) FROM clicks JOIN people ON user = uid JOIN (SELECT who, max(price) AS most "
    "FROM bought GROUP BY who) b ON b.who = user WHERE most > 4 GROUP BY country, most",
    "SELECT country, sum(v) FROM clicks JOIN people ON user = uid + 1 GROUP BY country",
    "SELECT country, sum(v) FROM clicks JOIN people ON user + 1 = uid GROUP BY country",
    "SELECT country, sum(v) FROM (SELECT user AS u, v FROM clicks WHERE v > 1) JOIN people ON u = uid GROUP BY country",
    "SELECT country, sum(v) FROM clicks JOIN people ON user = uid AND page = name GROUP BY country",
    "SELECT country, count(*) FROM clicks c JOIN orders o ON c.user = o.user JOIN people ON c.user = uid "
    "WHERE w < x GROUP BY country",
    "SELECT country, count(*) FROM people JOIN clicks c ON c.user = uid JOIN orders o ON o.user = uid GROUP BY country",
    "SELECT sum(v), count(*) FROM clicks c JOIN orders o USING (user) WHERE c.user NOT IN (SELECT uid FROM people)",
]


def tables(seed: int) -> dict[str, pa.Table]:
    """Clicks and orders of users, of whom some are people."""
    rng = np.random.default_rng(seed)

    def stream(n: int, value: str) -> pa.Table:
        user = pa.array(rng.integers(0, KEYS + 10, n), mask=rng.random(n) < 0.03)
        page = pa.array([f"n{k}" for k in rng.integers(0, KEYS, n)])
        ts = np.sort(rng.uniform(0, 86_400, n))
        return pa.table({"ts": ts, "user": user, "page": page, value: rng.lognormal(0.0, 1.0, n)})

    people = pa.table(
        {
            "uid": pa.array(np.arange(KEYS), pa.int32()),
            "gap": pa.array(np.arange(KEYS), mask=np.arange(KEYS) == 7),
            "name": [f"n{k}" for k in range(KEYS)],
            "country": pa.array([f"c{k % 7}" for k in range(KEYS)]).dictionary_encode(),
            "w": pa.array(rng.uniform(0.0, 1.0, KEYS), mask=rng.random(KEYS) < 0.1),
        }
    )
    lands = pa.table({"country": [f"c{k}" for k in range(6)], "side": [f"s{k % 2}" for k in range(6)]})
    bought = pa.table({"who": rng.integers(0, KEYS, 150), "price": np.round(rng.uniform(0, 10, 150), 1)})
    return {"clicks": stream(N, "v"), "orders": stream(600, "x"), "people": people, "lands": lands, "bought": bought}


@pytest.fixture(scope="module")
def shop() -> Iterator[Any]:
    with nile.connect() as db:
        for name, table in tables(3).items():
            db.register(name, table, time="ts" if "ts" in table.column_names else None)
        yield db


def rows(result: Any) -> list[tuple[Any, ...]]:
    """In order, numbers to nine digits."""
    return sorted(rows_of(result.to_arrow().to_pydict()), key=repr)


def rows_of(columns: dict[str, list[Any]]) -> list[tuple[Any, ...]]:
    """As they come."""
    found = zip(*columns.values(), strict=True)
    return [tuple(float(f"{x:.9g}") if isinstance(x, float) else x for x in row) for row in found]


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("costs", ["engine", "machine"])
def test_a_whole_budget_gives_the_exact_answer(shop: Any, query: str, costs: str) -> None:
    exact = rows(shop.sql(query))
    assert exact
    assert rows(shop.sql(f"{query} BUDGET 100 %", costs=costs)) == exact


@pytest.mark.parametrize("query", QUERIES[:1] + QUERIES[4:5] + QUERIES[7:8])
def test_a_part_of_a_budget_is_right_on_average_and_within_its_intervals(shop: Any, query: str) -> None:
    by = ["country"] if "GROUP" in query else []
    exact = shop.sql(query).to_arrow().to_pylist()
    truth = {tuple(row[name] for name in by): row for row in exact}
    totals = [name for name in exact[0] if name.startswith(("sum", "count(*)"))]
    ratios: list[float] = []
    inside: list[bool] = []
    for seed in range(40):
        found = shop.sql(f"{query} BUDGET 20 %", costs="engine", seed=seed)
        told, estimates = found.to_arrow().to_pylist(), found.estimates
        for at, row in enumerate(told):
            wanted = truth[tuple(row[name] for name in by)]
            for name in totals:
                ratios.append(row[name] / wanted[name])
                one = estimates[name][at]
                assert 0.0 < one.confidence <= 1.0
                inside.append(one.low <= wanted[name] * (1 + 1e-9) and one.high >= wanted[name] * (1 - 1e-9))
        assert found.accounting["clicks"].shed > 0
        assert found.accounting["people"].applied == KEYS
    assert abs(np.mean(ratios) - 1.0) < 4.0 * np.std(ratios) / math.sqrt(len(ratios)) + 0.01
    assert np.mean(inside) >= 0.93


@pytest.mark.parametrize("preference", ["desc", "asc", "weighted"])
def test_rows_of_a_preference_carry_what_is_looked_up(shop: Any, preference: str) -> None:
    query = "SELECT c.user, x, country, w FROM clicks c JOIN orders o ON c.user = o.user JOIN people ON c.user = uid"
    where = " WHERE w < 0.5 AND x > v"
    exact = rows(shop.sql(query + where))
    found = shop.sql(f"{query}{where} WITH PREFERENCE {preference} c.user BUDGET 100 %", outlier_cap=10**9).to_arrow()
    assert sorted(rows_of(found.select(["user", "x", "country", "w"]).to_pydict()), key=repr) == exact
    part = shop.sql(f"{query}{where} WITH PREFERENCE {preference} c.user BUDGET 20 %", costs="engine").to_arrow()
    told = part.select(["user", "x", "country", "w"]).to_pydict()
    assert set(rows_of(told)) <= set(exact)
    assert part.num_rows > 0


def test_a_selection_by_preference_tests_what_is_looked_up(shop: Any) -> None:
    query = f"SELECT user, v, country {JOINED} WHERE w < 0.5"
    found = shop.sql(f"{query} WITH PREFERENCE desc user BUDGET 100 %")
    assert rows(found) == rows(shop.sql(query))


def test_a_key_with_several_rows_is_refused(shop: Any) -> None:
    with pytest.raises(
        NotYet, match=r"one row a key, which tuples look up; got \d rows with bought.who = \d+; leave out"
    ):
        shop.sql("SELECT sum(v * price) FROM clicks JOIN bought ON user = who BUDGET 10 %").to_arrow()
    for query in ("SELECT count(*)", "SELECT page, sum(v)"):  # of which no column is looked at
        with pytest.raises(NotYet, match="one row a key"):
            shop.sql(f"{query} FROM clicks LEFT JOIN bought ON user = who GROUP BY page BUDGET 10 %").to_arrow()
    with pytest.raises(NotYet, match="150 rows and no equal columns"):
        shop.sql("SELECT sum(v * price) FROM clicks JOIN bought ON v < price BUDGET 10 %").to_arrow()
    with pytest.raises(NotYet, match="outer, semi or anti join"):
        shop.sql("SELECT count(*) FROM clicks RIGHT JOIN people ON user = uid BUDGET 10 %")
    with pytest.raises(NotYet, match="needed columns that are equal, by which tuples look rows up"):
        shop.sql("SELECT count(*) FROM clicks WHERE EXISTS (SELECT * FROM people WHERE w < v) BUDGET 10 %")


@pytest.mark.parametrize("costs", ["engine", "machine"])
def test_two_queries_of_one_text_look_up_what_is_there_now(costs: str) -> None:
    query = f"SELECT count(*) {JOINED} WHERE country = 'c1' AND user > 0 BUDGET 100 %"
    with nile.connect() as db:
        db.register("clicks", {"ts": [1.0, 2.0], "user": [1, 2]}, time="ts")
        for kept in ([1], [1, 2], []):
            uid = pa.array(kept, pa.int64())
            db.register(
                "people", pa.table({"uid": uid, "country": pa.array(["c1"] * len(kept), pa.string())}), replace=True
            )
            assert db.sql(query, costs=costs).fetchall() == [(len(kept),)]


def test_a_relation_that_changes_is_looked_up_as_it_is(tmp_path: Any) -> None:
    query = f"SELECT country, sum(v) {JOINED} GROUP BY country"
    clicks, people = tables(5)["clicks"], tables(5)["people"]
    with nile.connect(tmp_path / "store") as db:
        db.stream("clicks", clicks.schema, time="ts", keep="10 days")
        db.sql("CREATE RELATION people (uid BIGINT, country TEXT, w DOUBLE)")
        told = ", ".join(f"({row['uid']}, '{row['country']}', 0.5)" for row in people.to_pylist())
        db.sql(f"INSERT INTO people VALUES {told}")
        db.push("clicks", clicks)
        db.advance(90_000.0)
        assert rows(db.sql(f"{query} BUDGET 100 %")) == rows(db.sql(query))
        db.sql("DELETE FROM people WHERE country = 'c1'")
        assert rows(db.sql(f"{query} BUDGET 100 %")) == rows(db.sql(query))
        part = db.sql(f"{query} BUDGET 30 %", costs="engine").to_arrow()
        assert "c1" not in part.column("country").to_pylist()
        assert part.num_rows == 6
        (last,) = list(db.sql(query).progress())[-1:]
        assert rows(last) == rows(db.sql(query))
        with pytest.raises(NotYet, match="needed a relation that stays as it is, or aggregates"):
            db.subscribe(f"SELECT user, country {JOINED} WITH PREFERENCE desc user BUDGET 10 %")


@pytest.mark.parametrize("changing", [False, True])
@pytest.mark.parametrize(
    "query",
    [
        f"SELECT country, count(*) AS n, sum(v) AS s {JOINED} GROUP BY country",
        f"SELECT sum(v) AS s {JOINED} WHERE country <> 'c3' WINDOW '4 hours'",
        "SELECT count(*) AS n FROM clicks WHERE user NOT IN (SELECT uid FROM people)",
        "SELECT count(*) AS n FROM clicks WHERE user < (SELECT max(uid) FROM people)",
        "SELECT sum(k) AS n FROM clicks JOIN (SELECT uid, count(*) AS k FROM people GROUP BY uid) ON user = uid",
        "SELECT country, count(*) AS n FROM clicks JOIN (SELECT uid, max(country) AS country FROM people GROUP BY uid) "
        "ON user = uid GROUP BY country HAVING count(*) > (SELECT min(uid) FROM people)",
        "SELECT count(*) AS n FROM clicks c JOIN orders o ON c.user = o.user JOIN people ON c.user = uid "
        "WINDOW '1 hour'",
    ],
)
def test_standing_aggregates_sample_streams_beside_relations(query: str, changing: bool) -> None:
    given = tables(7)
    with nile.connect() as db:
        for name in ("clicks", "orders"):
            db.stream(name, given[name].schema, time="ts")
        if changing:
            db.sql("CREATE RELATION people (uid BIGINT, country TEXT)")
            told = ", ".join(f"({row['uid']}, '{row['country']}')" for row in given["people"].to_pylist())
            db.sql(f"INSERT INTO people VALUES {told}")
        else:
            db.register("people", given["people"])
        at = query.find(" WINDOW") if " WINDOW" in query else len(query)
        exact = db.subscribe(query, emit="snapshot")
        all_of_it = db.subscribe(f"{query[:at]} BUDGET 100 %{query[at:]}", emit="snapshot")
        part = db.subscribe(f"{query[:at]} BUDGET 40 %{query[at:]}", emit="snapshot")
        for k in range(4):
            for name in ("clicks", "orders"):
                at_hour = np.asarray(given[name]["ts"]) // 21_600.0
                db.push(name, given[name].filter(pa.array(at_hour == k)))
            db.advance(21_600.0 * (k + 1))

            def now(subscription: Any) -> list[tuple[Any, ...]]:
                batches = subscription.poll()
                return sorted(rows_of(pa.Table.from_batches(batches).to_pydict()), key=repr) if batches else []

            assert now(all_of_it) == now(exact)
        (found,) = part.poll() or [None]
        assert found is not None
        assert 0 < part.accounting["clicks"].shed < N
        if "JOIN orders" not in query and "GROUP" not in query:
            (truth,) = exact.poll()[0].column(0).to_pylist()
            assert math.isnan(part.estimate.value) if changing else part.estimate.low <= truth <= part.estimate.high


def test_estimate_of_a_snapshot_is_that_of_changes() -> None:
    told = []
    for emit in ("changes", "snapshot"):
        with nile.connect() as db:
            db.stream("clicks", pa.schema([("ts", pa.float64()), ("v", pa.float64())]), time="ts")
            found = db.subscribe("SELECT sum(v) FROM clicks BUDGET 30 %", emit=emit)
            db.push("clicks", {"ts": np.arange(1_000.0), "v": np.arange(1_000.0)})
            db.advance(2_000.0)
            told.append(found.estimate)
    assert told[0] == told[1]
    assert told[0].low < 499_500.0 < told[0].high


KINDS: dict[str, tuple[pa.Array, pa.Array]] = {
    "int32 and int64": (pa.array([1, 2, None, 9], pa.int32()), pa.array([2, 1, 5])),
    "int and double": (pa.array([1, 2, None, 3]), pa.array([2.0, 1.0, 2.5])),
    "decimal and double": (
        pa.array([decimal.Decimal("1.5"), decimal.Decimal("2.0"), None]), pa.array([2.0, 1.5, 7.25])
    ),
    "uint64": (pa.array([2**63 + 5, 2**63 + 6, 4], pa.uint64()), pa.array([2**63 + 6, 4, 2**63 + 7], pa.uint64())),
    "floats": (pa.array([-0.0, math.nan, 1.5, None]), pa.array([math.nan, 0.0, 2.5])),
    "text": (pa.array(["a", "", None, "é"]), pa.array(["é", "b", ""]).cast(pa.large_string())),
    "dictionary": (pa.array(["a", "b", None, "a"]).dictionary_encode(), pa.array(["b", "a"])),
    "times of two units": (
        pa.array([1, 2, None], pa.int64()).cast(pa.timestamp("s")),
        pa.array([2_000, 1], pa.int64()).cast(pa.timestamp("ms")),
    ),
    "dates": (pa.array([dt.date(2020, 1, 1), None]), pa.array([dt.date(2020, 1, 1), dt.date(2020, 1, 2)])),
    "booleans": (pa.array([True, None, False]), pa.array([True])),
    "bytes": (pa.array([b"a", b"b\x00", None]), pa.array([b"b\x00", b"b"])),
}  # fmt: skip


def plain(value: Any) -> Any:
    """What is the same where keys are: numbers as numbers, one NaN, -0.0 as 0.0."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value + 0.0
    return float(value) if isinstance(value, decimal.Decimal) else value


@pytest.mark.parametrize("near", [True, False])
def test_whole_numbers_are_places_or_codes(near: bool) -> None:
    rng = np.random.default_rng(2)
    keys = rng.permutation(5_000)[:3_000] - 2_000 if near else rng.integers(-(2**62), 2**62, 3_000)
    stored = StoredRows("r", ["k"], True, lambda: (pa.table({"k": keys, "v": np.arange(3_000)}), {}))
    ends = [-(2**63), 2**63 - 1, int(keys.min()) - 1, int(keys.max()) + 1]
    asked = pa.array([*rng.integers(-3_000, 4_000, 5_000), *keys[:500], *ends, None])
    known = {int(key): k for k, key in enumerate(keys)}
    wanted = [None if key is None else known.get(key) for key in asked.to_pylist()]
    assert stored.values([asked], "v", len(asked)).to_pylist() == wanted
    assert (stored._direct is not None) is near


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("parts", [1, 2])
def test_look_ups_are_those_of_a_dictionary(kind: str, parts: int) -> None:
    left, right = KINDS[kind]
    table = pa.table({**{f"k{p}": right for p in range(parts)}, "v": [f"v{k}" for k in range(len(right))]})
    stored = StoredRows("r", [f"k{p}" for p in range(parts)], True, lambda: (table, {}))
    known = {plain(key): f"v{k}" for k, key in enumerate(right.to_pylist())}
    wanted = [None if key is None else known.get(plain(key)) for key in left.to_pylist()]
    for _ in range(2):
        assert stored.values([left] * parts, "v", len(left)).to_pylist() == wanted
        assert stored.values([left] * parts, None, len(left)).to_pylist() == [each is not None for each in wanted]


def test_an_empty_stream_of_dictionaries_has_no_group() -> None:
    with nile.connect() as db:
        empty = pa.table({"ts": pa.array([], pa.float64()), "b": pa.array([]).dictionary_encode()})
        db.register("s", empty, time="ts")
        assert db.sql("SELECT b, count(*) FROM s GROUP BY b BUDGET 50 %").fetchall() == []


def test_a_copy_that_a_task_gets_has_the_rows() -> None:
    table = pa.table({"k": [3, 5], "v": [30, 50]})
    read: list[int] = []

    def rows() -> Any:
        read.append(1)
        return table, {}

    stored = StoredRows("r", ["k"], True, rows)
    sent = copy.deepcopy(stored)
    assert sent.values([pa.array([5, 4])], "v", 2).to_pylist() == [50, None]
    assert stored.values([pa.array([3])], "v", 1).to_pylist() == [30]
    assert read == [1]


@pytest.mark.parametrize(
    "query",
    [
        f"SELECT user, v, country {JOINED} WHERE w < 0.5",
        "SELECT c.user, x, country FROM clicks c JOIN orders o ON c.user = o.user JOIN people ON c.user = uid",
        "SELECT c.user, x, w FROM clicks c JOIN orders o ON c.user = o.user JOIN people ON c.user = uid WHERE w < x",
        f"SELECT country, count(*), sum(v) {JOINED} GROUP BY country",
    ],
)
@pytest.mark.parametrize("preference", ["", "desc", "asc"])
def test_progress_over_a_history_looks_up(query: str, preference: str) -> None:
    given = tables(11)
    with nile.connect() as db:
        for name in ("clicks", "orders"):
            db.stream(name, given[name].schema, time="ts")
            db.push(name, given[name])
        db.register("people", given["people"])
        on = "c.user" if "JOIN orders" in query else "user"
        asked = f"{query} WITH PREFERENCE {preference} {on}" if preference and "GROUP" not in query else query
        cap = {"outlier_cap": 10**9} if preference == "asc" and "JOIN orders" in query else {}
        (last,) = list(db.sql(asked, **cap).progress())[-1:]
        assert rows(last) == rows(db.sql(query))


def test_keys_without_rows_are_forgotten() -> None:
    table = pa.table({"k": [3, 5], "v": [30, 50]})
    stored = StoredRows("r", ["k"], True, lambda: (table, {}))
    for begin in range(0, 400_000, 50_000):
        keys = pa.array([*range(10 + begin, 10 + begin + 50_000), 5])
        assert stored.values([keys], "v", 50_001).to_pylist()[-1] == 50
    assert stored._codes.known < 200_000
