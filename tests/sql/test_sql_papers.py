"""Every SQL example of the papers runs as printed, or with the change that docs/sql.md names beside it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import nile

SHOPS = {
    "Store1": [(0.0, 1, "tea", 2.0), (10.0, 2, "cup", 4.0), (30.0, 1, "tea", 2.5), (95.0, 3, "jar", 9.0)],
    "Store2": [(5.0, 1, "tea", 2.0), (12.0, 1, "tea", 2.0), (40.0, 2, "cup", 4.5), (100.0, 3, "jar", 9.0)],
    "Store3": [(8.0, 1, "tea", 2.0), (35.0, 1, "tea", 3.0), (41.0, 2, "cup", 4.0), (300.0, 3, "jar", 8.0)],
}
PREFERENCES = ("desc", "weighted", "asc")
SENSORS = [(0.0, 2, 20.5, 7.5), (1.0, 4, 21.0, 7.0), (2.0, 3, 19.0, 6.5), (3.0, 2, 20.0, 7.25)]
REQUESTS = [
    (0.0, 1, "stanford.edu"),
    (50_000.0, 2, "mit.edu"),
    (90_000.0, 1, "stanford.edu"),
    (90_001.0, 3, "stanford.edu"),
]


@pytest.fixture
def db() -> nile.Database:
    db = nile.connect()
    for name, rows in SHOPS.items():
        at, number, item, price = zip(*rows, strict=True)
        db.register(
            name, pa.table({"TimeStamp": at, "ItemNo": number, "ItemNum": number, "ItemName": item, "Price": price}),
            time="TimeStamp",
        )  # fmt: skip
    for name, shop in (("Camera1", "Store1"), ("Camera2", "Store2"), ("Camera3", "Store3")):
        at, number, *_ = zip(*SHOPS[shop], strict=True)
        db.register(name, pa.table({"at": at, "ObjID": number, "PacktID": number}), time="at")
    for number, shop in enumerate(SHOPS, 1):
        at, key, *_ = zip(*SHOPS[shop], strict=True)
        db.register(f"Network{number}", pa.table({"at": at, "PacktID": key}), time="at")
    at, sensor, temperature, value = zip(*SENSORS, strict=True)
    db.register(
        "Sensors", pa.table({"at": at, "SensorID": sensor, "temperature": temperature, "SensorValue": value}), time="at"
    )
    at, gas = [0.0, 1.0, 2.5, 9.0], ["CO", "CO", "CO", "NO"]
    db.register("SensorTables", pa.table({"at": at, "GasId": gas, "GasName": gas}), time="at")
    at, client, domain = zip(*REQUESTS, strict=True)
    db.register("Requests", pa.table({"at": at, "client_id": client, "domain": domain}), time="at")
    return db


def triples(within: Callable[[float, float, float], bool]) -> list[tuple[Any, ...]]:
    """Combinations of the three shops with equal numbers whose times are as asked."""
    return sorted(
        (a[1], a[0], b[0], c[0])
        for a, b, c in product(*SHOPS.values())
        if a[1] == b[1] == c[1] and within(a[0], b[0], c[0])
    )


def test_figure_3_creates_a_summary(db: nile.Database) -> None:
    made = db.sql("CREATE SUMMARY summary_name ON Store1 (ItemNo) WITH GRANULARITY 3600 AND COLLAPSE(4,\n3)")
    assert "summary_name" in (made.message or "")


@pytest.mark.parametrize("specifier", ["desc", "asc", "weighted"])
def test_figure_6_joins_two_stores_by_preference(db: nile.Database, specifier: str) -> None:
    found = db.sql(f"""
        SELECT S1.ItemNo, S1.TimeStamp, S2.TimeStamp
        FROM Store1 S1, Store2 S2
        WHERE S1.ItemNo= S2.ItemNo
        WITH PREFERENCE {specifier}
        SUMMARY.Estimate.Count(S1.ItemNo),
        SUMMARY.Estimate.Count(S2.ItemNo)
        FADE FACTOR 0.8
        WINDOW 20
    """).to_arrow()
    both = product(SHOPS["Store1"], SHOPS["Store2"])
    pairs = [(a[1], a[0], b[0]) for a, b in both if a[1] == b[1] and abs(a[0] - b[0]) <= 20]
    assert sorted(tuple(row.values())[:3] for row in found.to_pylist()) == sorted(pairs)


@pytest.fixture
def busy() -> nile.Database:
    """Two stores of 2,000 tuples each: half of them of 5 items, the others of 3,000."""
    rng = np.random.default_rng(6)
    made = nile.connect()
    for name in ("Store1", "Store2"):
        often = rng.random(2_000) < 0.5
        item = np.where(often, rng.integers(0, 5, 2_000), rng.integers(5, 3_000, 2_000))
        ts = np.sort(rng.random(2_000) * 1_000)
        made.register(name, {"ts": ts, "ItemNo": item, "price": 1.0 + item % 7}, time="ts")
    return made


FIGURE_6 = """
    SELECT S1.ItemNo, S1.ts, S2.ts AS other FROM Store1 S1, Store2 S2 WHERE S1.ItemNo = S2.ItemNo
    WITH PREFERENCE {} SUMMARY.Estimate.Count(S1.ItemNo), SUMMARY.Estimate.Count(S2.ItemNo) WINDOW 500
"""


@pytest.mark.parametrize("guide", ["countsketch", "directory"])
def test_figure_6_inside_a_budget_finds_what_its_preference_says(busy: nile.Database, guide: str) -> None:
    every = busy.sql(FIGURE_6.format("desc")).to_arrow()
    exact = Counter(every["ItemNo"].to_pylist())
    rare = {item for item, pairs in exact.items() if pairs <= 4}
    assert len(rare) > 50
    few = {kind: busy.sql(FIGURE_6.format(kind), budget=0.1, costs="engine", guide=guide) for kind in PREFERENCES}
    found = {kind: answer.to_arrow() for kind, answer in few.items()}
    many = Counter(found["desc"]["ItemNo"].to_pylist())
    assert sum(many.values()) < 0.2 * every.num_rows
    assert sum(pairs for item, pairs in many.items() if item < 5) > 0.98 * sum(many.values())
    outliers = found["asc"]["ItemNo"].to_pylist()
    assert outliers
    assert sum(item in rare for item in outliers) > 0.8 * len(outliers)  # others were rare when the streams began
    assert sum(found["weighted"]["_weight"].to_pylist()) == pytest.approx(every.num_rows, rel=0.2)
    assert 0 < found["weighted"].num_rows < 0.2 * every.num_rows


def test_an_average_in_a_budget_is_of_a_sample_that_its_preference_makes_faithful(busy: nile.Database) -> None:
    """Section 4.3: the mean over a weighted selection, within a part of its cost, has an interval with the truth."""
    text = "SELECT avg(price) AS p FROM Store1 S1"
    truth = busy.sql(text).fetchall()[0][0]
    told = busy.sql(f"{text} WITH PREFERENCE weighted SUMMARY.Estimate.Count(S1.ItemNo)", budget=0.2)
    (found,) = told.fetchall()[0]
    assert found != truth
    assert told.estimate.low <= truth <= told.estimate.high
    assert found == pytest.approx(truth, rel=0.1)


def test_the_average_is_over_a_weighted_sample(db: nile.Database) -> None:
    found = db.sql("SELECT S1.ItemNo FROM Store1 S1 WITH PREFERENCE weighted SUMMARY.Estimate.Count(S1.ItemNo)")
    assert sorted(found.to_arrow()["ItemNo"].to_pylist()) == [1, 1, 2, 3]


def test_the_sum_prefers_value_times_frequency(db: nile.Database) -> None:
    text = "SELECT S1.ItemNo FROM Store1 S1 WITH PREFERENCE desc SUMMARY.Estimate.Count(S1.ItemNo)\u00d7S1.ItemNo"
    assert sorted(db.sql(text).to_arrow()["ItemNo"].to_pylist()) == [1, 1, 2, 3]


def test_form_1_joins_three_stores_in_one_window(db: nile.Database) -> None:
    found = db.sql("""
        SELECT A.ItemName, A.TimeStamp AS a, B.TimeStamp AS b, C.TimeStamp AS c
        FROM Store1 A, Store2 B, Store3 C
        WINDOW = 25
        WHERE A.ItemNum=B.ItemNum AND B.ItemNum=C.ItemNum
    """).to_arrow()
    names = {1: "tea", 2: "cup", 3: "jar"}
    wanted = triples(lambda a, b, c: max(a, b, c) - min(a, b, c) <= 25)
    assert wanted
    assert sorted(found.to_pylist(), key=str) == sorted(
        ({"ItemName": names[k], "a": a, "b": b, "c": c} for k, a, b, c in wanted), key=str
    )


def test_form_2_has_a_window_for_every_pair(db: nile.Database) -> None:
    found = db.sql("""
        SELECT A.ObjID, A.at AS a, B.at AS b, C.at AS c FROM Camera1 A, Camera2 B, Camera3 C
        WINDOW (A,B)=30 AND WINDOW (B,C)=5 AND WINDOW (A,C)=33 WHERE A.ObjID=B.ObjID AND B.ObjID=C.ObjID
    """).to_arrow()
    wanted = triples(lambda a, b, c: abs(a - b) <= 30 and abs(b - c) <= 5 and abs(a - c) <= 33)
    assert wanted
    assert sorted(tuple(row.values()) for row in found.to_pylist()) == wanted


def test_form_3_leaves_a_pair_without_a_window(db: nile.Database) -> None:
    found = db.sql("""
        SELECT S1.PacktID, S1.at AS a, S2.at AS b, S3.at AS c
        FROM Network1 S1, Network2 S2, Network3 S3
        WINDOW (S1,S2)=30 AND WINDOW (S2,S3)=24
        WHERE S1.PacktID=S2.PacktID AND S2.PacktID=S3.PacktID
    """).to_arrow()
    wanted = triples(lambda a, b, c: abs(a - b) <= 30 and abs(b - c) <= 24)
    assert wanted
    assert sorted(tuple(row.values()) for row in found.to_pylist()) == wanted


def test_steam_selects_two_sensors(db: nile.Database) -> None:
    text = "Select S.SensorValue, temperature FROM Sensors S WHERE S.SensorID=2 OR S.SensorID=4"
    assert db.sql(text).fetchall() == [(7.5, 20.5), (7.0, 21.0), (7.25, 20.0)]


def test_steam_joins_a_table_with_itself_three_times(db: nile.Database) -> None:
    text = """
        SELECT A.GasName FROM SensorTables A, SensorTables B, SensorTables C
        WINDOW=1
        WHERE A.GasId=B.GasId AND B.GasId= C.GasId
    """
    times = [0.0, 1.0, 2.5]
    wanted = sum(max(each) - min(each) <= 1 for each in product(times, repeat=3))
    assert sorted(db.sql(text).fetchall()) == sorted([("CO",)] * wanted + [("NO",)])


def test_cql_counts_the_requests_of_the_last_day(db: nile.Database) -> None:
    text = """
        Select Count(*)
        From Requests S [Range 1 Day Preceding]
        Where S.domain = 'stanford.edu'
    """
    assert db.sql(text, emit="snapshot").fetchall() == [(2,)]
    assert db.sql("Select * From Requests").to_arrow().num_rows == 4
