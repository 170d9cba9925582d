"""Random lakes of two streams and random queries over them, with the answer found pair by pair from what is given."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from workload_lake import SECOND, write_lake

import nile

HOUR = 3_600 * SECOND
Pair = tuple[int, int]


@dataclass(frozen=True)
class Workload:
    """Streams "a" and "b" of a lake, and a query that joins them.

    text: with "{}" where a preference goes; pairs: the same query, asked for the pairs that it is about.  window: ns,
    or None; compared: price of one below that of the other; grouped: it counts by item.  items, prices: of each stream
    by ordinal, which its column "id" holds.
    """

    root: Path
    text: str
    pairs: str
    window: int | None
    compared: bool
    grouped: bool
    items: tuple[list[Any], list[Any]]
    prices: tuple[list[int], list[int]]

    def database(self) -> nile.Database:
        db = nile.connect()
        for name in ("a", "b"):
            db.register(name, self.root / name)
        return db

    def answer(self, pairs: Iterable[Pair]) -> list[tuple[Any, ...]]:
        """The rows, sorted, from all pairs of equal items in the window, or those of them that are meant."""
        kept = [(a, b) for a, b in pairs if not self.compared or self.prices[0][a] < self.prices[1][b]]
        if not self.grouped:
            return sorted(kept)
        counts: dict[Any, int] = {}
        for a, _ in kept:
            counts[self.items[0][a]] = counts.get(self.items[0][a], 0) + 1
        return sorted(counts.items())


def workload(root: Path, seed: int, *, many: bool = False) -> Workload:
    """Text or whole numbers as keys, some null; ties in time; files cut in any way, many: into many partitions."""
    source = random.Random(seed)
    hours = 20 if many else source.choice((1, 6, 20))
    text, keys = source.random() < 0.5, 20 if many else source.choice((20, 400))
    new_keys = source.choice((0, 30))  # an hour
    items, prices = [], []
    for at, name in enumerate("ab"):
        rng = np.random.default_rng([seed, at])
        count = 1_200 if many else source.choice((1, 300, 1_200))
        ts = np.sort(rng.integers(0, hours * HOUR, count) // SECOND * SECOND)
        drawn = (rng.zipf(source.choice((1.2, 1.6)), count) % keys + ts // HOUR * new_keys).tolist()
        item = [None if rng.random() < 0.03 else f"item {key}" if text else key for key in drawn]
        price = rng.integers(0, 100, count)
        columns = {"item": pa.array(item, pa.string() if text else pa.int64()), "price": price, "id": np.arange(count)}
        bits, group = source.choice((3, 8, 12)), source.choice((50, 500))
        range_s = source.choice((1_800, 3_600) if many else (1_800, 3_600, 86_400))
        write_lake(root, name, ts, columns, range_s=range_s, group_rows=group, bits=bits)
        items.append(item)
        prices.append(price.tolist())
    window = source.choice((20, 60, 300) if many else (1, 60, 3_600, None))
    compared, grouped = source.random() < 0.5, source.random() < 0.3
    core = "FROM a A, b B WHERE A.item = B.item" + (" AND A.price < B.price" if compared else "")
    within = "" if window is None else f" WINDOW {window}"
    pairs = f"SELECT A.id, B.id AS other {core} {{}}{within}"
    counts = f"SELECT A.item, count(*) AS n {core} GROUP BY A.item {{}}{within}"
    return Workload(
        root,
        counts if grouped else pairs,
        pairs.format(""),
        None if window is None else window * SECOND,
        compared,
        grouped,
        (items[0], items[1]),
        (prices[0], prices[1]),
    )
