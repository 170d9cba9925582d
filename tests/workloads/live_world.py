"""A database with live streams and a relation that changes, what happens to both, and what DuckDB makes of it."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from judge import fresh_duckdb
from sql_random import RandomQuery, cell, tables

import nile

SECOND = 1_000_000_000
RELATION = pa.schema([("k", pa.string()), ("w", pa.int64())])


class World:
    """A database with live streams and a relation that changes, and what DuckDB needs to know of both."""

    def __init__(self, rng: random.Random, made: RandomQuery) -> None:
        self.rng, self.made = rng, made
        self.data = tables(rng, 24)
        self.gone = {name: [float("inf")] * table.num_rows for name, table in self.data.items()}
        self.db, self.oracle = nile.connect(), fresh_duckdb()
        self.oracle.execute("CREATE TEMP TABLE r (k VARCHAR, w BIGINT)")
        for name in ("s1", "s2", "s3"):
            self.db.stream(name, self.data[name].schema, time="ts")
        self.db.sql("CREATE RELATION r (k TEXT, w BIGINT)")
        self.versions: list[tuple[float, pa.Table]] = []
        self.changed("INSERT INTO r VALUES ('tea', 1), ('cup', 2), ('cup', 2), (NULL, 3)", 0)

    def changed(self, text: str, at: int) -> None:
        self.db.sql(f"{text} AT {at}")
        self.oracle.execute(text)
        self.versions.append((at, self.oracle.sql("SELECT * FROM r").to_arrow_table()))

    def wanted(self, instant: float) -> Counter[tuple[Any, ...]]:
        connection = fresh_duckdb()
        for name in ("s1", "s2", "s3"):
            held = self.data[name].filter(pa.array([gone > instant for gone in self.gone[name]], pa.bool_()))
            connection.register(name, held)
        connection.register("r", next(table for at, table in reversed(self.versions) if at <= instant))
        rows = connection.execute(self.made.at(instant)).fetchall()
        return Counter(tuple(map(cell, row)) for row in rows)

    def push(self, begin: int, end: int) -> None:
        """What comes from `begin` on and before `end`, in pieces of all streams in turn."""
        pieces: dict[str, list[pa.Table]] = {}
        for name in ("s1", "s2", "s3"):
            ts = self.data[name].column("ts")
            some = self.data[name].filter(pc.and_(pc.greater_equal(ts, begin), pc.less(ts, end)))
            cuts = sorted(self.rng.sample(range(some.num_rows + 1), min(2, some.num_rows + 1)))
            both = zip([0, *cuts], [*cuts, some.num_rows], strict=True)
            pieces[name] = [some.slice(first, last - first) for first, last in both if last > first]
        while waiting := [name for name, some in pieces.items() if some]:
            name = self.rng.choice(waiting)
            self.db.push(name, pieces[name].pop(0))
        self.db.advance(end)

    def take_back(self, now: int) -> None:
        for name in ("s1", "s2", "s3"):
            ts = self.data[name].column("ts").to_pylist()
            gone = self.gone[name]
            some = [at for at in range(len(ts)) if ts[at] < now and gone[at] > now and self.rng.random() < 0.08]
            if some:
                rows = self.data[name].take(some)
                self.db.push(name, rows.append_column("_sign", pa.array([-1] * len(some), pa.int64())))
                for at in some:
                    gone[at] = now

    def change(self, now: int) -> None:
        key, weight = self.rng.choice(["'tea'", "'cup'", "'jar'", "NULL"]), self.rng.randrange(4)
        is_it = "k IS NULL" if key == "NULL" else f"k = {key}"
        self.changed(
            self.rng.choice(
                [
                    f"INSERT INTO r VALUES ({key}, {weight}), ('jar', NULL)",
                    f"DELETE FROM r WHERE {is_it} OR w > {weight}",
                    f"UPDATE r SET w = coalesce(w, 0) + 1 WHERE {is_it}",
                    f"UPDATE r SET k = {key} WHERE w < {weight}",
                ]
            ),
            now,
        )
