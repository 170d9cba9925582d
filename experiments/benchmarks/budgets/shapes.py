"""The joins budgets are measured on: by matches a tuple, skew, window, type of keys and source; and real retail."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import cycle, product
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import pyarrow.parquet as parquet

from nile.answers.join_query import JoinQuery
from nile.engine.database import Database
from nile.experiments.run.retail import retail_file
from nile.summaries.heavy import pa, pc

__all__ = ["Retail", "Shape", "Streams", "quick", "shapes"]

Array = np.ndarray[Any, Any]
MATCHES = (0.2, 1.0, 16.0, 480.0)
SKEWS = (0.5, 0.8, 1.23)
WINDOWS = {"1 min": 60, "1 h": 3_600}
FIRST, OTHERS = ("int", "Arrow"), (("text", "Arrow"), ("int", "Parquet"), ("float", "Arrow"), ("text", "Parquet"))
"""Types of keys and sources: every shape has the first, and one of the others in turn."""
RETAIL = ((1, 1, "Arrow"), (6, 1, "Parquet"), (1, 4, "Arrow"))
"""Of the retail file: hours in a window, how often it comes, and where from."""
TUPLES, BRIEFLY, MOST_PAIRS = 1_000_000, 300_000, 144_000_000
_SECOND = 1_000_000_000
_GAP = _SECOND // 100
"""ns between tuples of a stream, unless so skewed keys would match more often."""
_MOST_KEYS, _NEAR = 1 << 22, 1.5
"""Keys to choose among, and how many times the matches are near enough."""


class Shape(NamedTuple):
    """Two streams of `tuples` each; matches: pairs per tuple of one stream; window: seconds; kind: of the key."""

    matches: float
    skew: float
    window: int
    kind: str
    source: str
    tuples: int

    def __str__(self) -> str:
        name = next((name for name, seconds in WINDOWS.items() if seconds == self.window), f"{self.window} s")
        return (
            f"{self.matches:g} matches, Zipf {self.skew:g}, {name}, {self.kind} keys, {self.tuples:,} x 2, "
            f"{self.source}"
        )

    def tables(self) -> Iterator[pa.Table]:
        """Both streams, with the columns ts and k."""
        keys, gap = _keys(self)
        share = np.arange(1, keys + 1, dtype=np.float64) ** -self.skew
        share /= share.sum()
        names = np.random.default_rng(5).permutation(keys)
        for seed in (0, 1):
            key = pa.array(names[np.random.default_rng(seed).choice(keys, self.tuples, p=share)])
            if self.kind != "int":
                key = key.cast(pa.string() if self.kind == "text" else pa.float64())
            yield pa.table({"ts": pa.array(np.arange(self.tuples) * gap).cast(pa.timestamp("ns")), "k": key})


class Retail(NamedTuple):
    """What real stores with even and odd numbers sold, by item, and so often one after the other.  window: seconds."""

    file: Path
    window: int
    times: int = 1
    source: str = "Arrow"

    def __str__(self) -> str:
        told = "" if self.times == 1 else f", {self.times} times in a row"
        return f"retail by item, {self.window // 3_600} h{told}, {self.source}"

    @property
    def tuples(self) -> int:
        """Of a stream, about."""
        return int(self.times * parquet.read_metadata(self.file).num_rows // 2)

    def tables(self) -> Iterator[pa.Table]:
        """Both streams, with the columns ts and k."""
        sold = parquet.read_table(self.file, columns=["ts", "vstore", "item_id"])
        sold = sold.filter(pc.is_valid(sold["vstore"]))
        ts = sold["ts"].cast(pa.timestamp("ns")).cast(pa.int64()).to_numpy()
        again = int(ts[-1] - ts[0]) + 2 * _SECOND * self.window
        odd = sold["vstore"].to_numpy() % 2 == 1
        for own in (~odd, odd):
            often = np.concatenate([ts[own] + k * again for k in range(self.times)])
            key = pa.concat_arrays(sold["item_id"].filter(pa.array(own)).chunks * self.times)
            yield pa.table({"ts": pa.array(often).cast(pa.timestamp("ns")), "k": key})


def shapes(tuples: int = TUPLES) -> Iterator[Shape | Retail]:
    """The grid.  Where one key alone would match too often, tuples come more rarely; the windows then do not differ.

    Behind it the retail file, where it is, and what it is when it comes four times.
    """
    other = cycle(OTHERS)
    for matches, skew, window in product(MATCHES, SKEWS, WINDOWS.values()):
        shape = Shape(matches, skew, window, *FIRST, min(tuples, int(MOST_PAIRS / max(1.0, matches))))
        if window == min(WINDOWS.values()) or _keys(shape)[1] == _GAP:
            kind, source = next(other)
            yield shape
            yield shape._replace(kind=kind, source=source)
    file = retail_file()
    if file is not None:
        yield from (Retail(file, hours * 3_600, times, source) for hours, times, source in RETAIL)


def quick() -> Iterator[Shape]:
    """Nine shapes, small, in which every number of matches, window and source occurs, and most skews and keys."""
    for matches, skew, window, kind in (
        (0.2, 0.5, 3_600, "int"), (0.2, 1.23, 60, "text"), (1.0, 0.5, 60, "text"), (1.0, 1.23, 60, "int"),
        (16.0, 0.5, 60, "int"), (16.0, 0.5, 3_600, "text"), (16.0, 1.23, 60, "int"), (480.0, 1.23, 60, "int"),
        (480.0, 0.5, 3_600, "text"),
    ):  # fmt: skip
        source = "Parquet" if (matches, skew) == (1.0, 0.5) else "Arrow"
        yield Shape(matches, skew, window, kind, source, BRIEFLY if matches < 100.0 else BRIEFLY // 3)


@lru_cache
def _alike(skew: float) -> Array:
    """Of so many keys and one, how often two tuples have the same one: float64 [keys], falling."""
    at = np.arange(1, _MOST_KEYS + 1, dtype=np.float64) ** -skew
    return cast(Array, np.cumsum(at * at) / np.cumsum(at) ** 2)


def _keys(shape: Shape) -> tuple[int, int]:
    """(distinct keys, ns between tuples of a stream) that give the matches."""
    alike = _alike(shape.skew)
    within = min(float(shape.tuples), 2.0 * shape.window * _SECOND / _GAP)
    keys = min(_MOST_KEYS, int(np.searchsorted(-alike, -shape.matches / within)) + 1)
    if alike[keys - 1] * within <= _NEAR * shape.matches:
        return keys, _GAP
    keys = shape.tuples
    return keys, int(2.0 * shape.window * _SECOND * float(alike[keys - 1]) / shape.matches)


class Streams:
    """A shape's streams, registered as a and b with the columns ts and k, and what asks for their join."""

    def __init__(self, shape: Shape | Retail, folder: Path) -> None:
        """folder: where files are written, if it reads any.  sources: tables, or paths of files, of a and b."""
        self.shape = shape
        self.db = Database()
        self.sources: list[Any] = []
        for name, table in zip("ab", shape.tables(), strict=True):
            source: Any = table
            if shape.source == "Parquet":
                source = folder / f"{name}.parquet"
                parquet.write_table(table, source)
            self.db.register(name, source, time="ts")
            self.sources.append(source)

    @property
    def query(self) -> JoinQuery:
        """The join of both."""
        return self.db.join("a", "b", on="k", window=self.shape.window)

    def text(self, preference: str = "") -> str:
        """The same in SQL."""
        told = f"WITH PREFERENCE {preference} a.k " if preference else ""
        return f"SELECT a.k, a.ts, b.ts AS other FROM a, b WHERE a.k = b.k {told}WINDOW '{self.shape.window} s'"
