"""The catalog that SQL tests share: five small tables with every kind of trouble in them, as data and as names."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

import nile
from nile.sql.catalog import Entry
from nile.sql.statements import CreateSummary, CreateView

__all__ = ["CATALOG", "TABLES", "TIMES", "TestCatalog", "connect_catalog"]

_SECOND = 1_000_000


def _sales(rows: list[tuple[object, ...]]) -> pa.Table:
    """ts in seconds since 2011-12-09 08:00; ties, nulls, a NaN and returns are on purpose."""
    start = 1_323_417_600 * _SECOND
    ts, seq, store, item, price, quantity, customer = zip(*rows, strict=True)
    return pa.table(
        {
            "ts": pa.array([start + int(t) * _SECOND for t in ts], pa.timestamp("us")),  # type: ignore[call-overload]
            "seq": pa.array(seq, pa.int64()),
            "store_id": pa.array(store, pa.int32()),
            "item_id": pa.array(item, pa.string()),
            "price": pa.array(price, pa.float64()),
            "quantity": pa.array(quantity, pa.int64()),
            "customer_id": pa.array(customer, pa.int64()),
        }
    )


STORE1 = _sales(
    [
        (0, 1, 0, "tea", 2.5, 6, 100),
        (0, 2, 0, "cup", 4.0, 2, 100),
        (60, 3, 0, "tea", 2.5, 12, 101),
        (120, 4, 0, "jar", 9.75, 1, None),
        (120, 5, 0, None, 1.25, 3, 101),
        (600, 6, 0, "tea", 2.25, -6, 100),
        (1800, 7, 0, "cup", float("nan"), 4, None),
        (3600, 8, 0, "box", 12.0, 1, 102),
        (3660, 9, 0, "tea", None, 2, 103),
        (7200, 10, 0, "jar", 9.5, 5, 102),
    ]
)
STORE2 = _sales(
    [
        (30, 1, 1, "tea", 2.75, 4, 200),
        (60, 2, 1, "tea", 2.75, 8, 201),
        (90, 3, 1, "cup", 4.25, 1, None),
        (600, 4, 1, "box", 11.5, 2, 200),
        (1200, 5, 1, None, 3.0, 7, 202),
        (3600, 6, 1, "box", 11.5, 3, 201),
        (3630, 7, 1, "jar", 10.0, None, 203),
        (9000, 8, 1, "tea", 2.5, 1, 200),
    ]
)
SENSORS = pa.table(
    {
        "at": pa.array([0.0, 0.5, 1.0, 1.0, 2.5, 10.0, 11.0, 60.0], pa.float64()),
        "sensor_id": pa.array([1, 2, 1, 3, 2, 4, 1, 2], pa.int64()),
        "temperature": pa.array([20.5, 21.0, 20.75, None, 22.5, -3.0, 20.5, 23.0], pa.float64()),
        "room": pa.array(["hall", "lab", "hall", "roof", "lab", "roof", "hall", "lab"], pa.string()),
    }
)
ITEMS = pa.table(
    {
        "item_id": pa.array(["tea", "cup", "jar", "pot"], pa.string()),
        "category": pa.array(["drink", "china", "china", None], pa.string()),
        "weight": pa.array([0.1, 0.3, 0.5, 0.9], pa.float64()),
    }
)
ROOMS = pa.table({"room": pa.array(["hall", "lab", "attic"], pa.string()), "floor": pa.array([0, 1, 3], pa.int64())})

TABLES: Mapping[str, pa.Table] = {
    "store1": STORE1,
    "store2": STORE2,
    "sensors": SENSORS,
    "items": ITEMS,
    "rooms": ROOMS,
}
TIMES: Mapping[str, str] = {"store1": "ts", "store2": "ts", "sensors": "at"}
SUMMARY = CreateSummary("s1", "store1", "item_id", 900 * 1_000_000_000, 4, 3)


class TestCatalog:
    """A catalog without a database."""

    __test__ = False

    @property
    def entries(self) -> Mapping[str, Entry]:
        return {name: Entry(name, table.schema, TIMES.get(name)) for name, table in TABLES.items()}

    @property
    def summaries(self) -> Mapping[str, CreateSummary]:
        return {"s1": SUMMARY}

    @property
    def views(self) -> Mapping[str, CreateView]:
        return {}


CATALOG = TestCatalog()


def connect_catalog() -> nile.Database:
    """A database with the same names."""
    db = nile.connect()
    for name, table in TABLES.items():
        db.register(name, table, time=TIMES.get(name))
    db.sql("CREATE SUMMARY s1 ON store1 (item_id) WITH GRANULARITY '15 min' AND COLLAPSE (4, 3)")
    return db
