"""Where countsketch leads as a guide, and where the directory does: many queries, many keys, tuples that are not held.

One query pays for a sketch of its own; many standing queries share it, and each asks a row of counters where the
directory looks up a list (cost clock, `engine` table: the same on every machine).  Keeping either is measured in CPU
time and bytes over ever more keys; what sketches know without tuples or keys is the total of a join
(`nile.operators.common.total_bounds`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import numpy as np

import nile
from nile.experiments.benchmarks.harness import Measure, Result, benchmark
from nile.experiments.benchmarks.truth.family import made
from nile.operators.common.plan import default_spec
from nile.operators.common.total_bounds import total_bounds
from nile.operators.inputs.joining import Joinable
from nile.pyramid.grid.store import PIECE, TupleStore
from nile.summaries.countsketch import CountSketch
from nile.summaries.hashing import KeyHasher, KeyTable
from nile.summaries.heavy import pa

__all__ = ["Sizes", "guides", "measured"]

Array = np.ndarray[Any, Any]
TITLE = "Where countsketch leads as a guide: many queries, many keys, tuples that are not held"
_STREAMS = ("near-empty", "many keys", "zipf 0.5", "zipf 1", "sessions")
_BATCH, _ROUNDS, _WINDOW = 1 << 16, 5, 50_000


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured.  queries: that stand together; tuples: of a stream; keys: distinct ones."""

    queries: tuple[int, ...]
    keys: tuple[int, ...]
    tuples: int = 4_000
    kept: int = 1_000_000
    budgets: tuple[float, ...] = (0.1,)
    streams: tuple[str, ...] = _STREAMS


def _database(joined: Joinable) -> nile.Database:
    db = nile.connect()
    for name, one in zip("ab", joined.streams, strict=True):
        times = pa.array(one.ts).view(pa.timestamp("ns"))
        db.register(name, pa.table({"at": times, "k": one.key.combine_chunks()}), time="at")
    return db


def _standing_rows(sizes: Sizes) -> Iterator[dict[str, Any]]:
    """Joins of one pair of streams within windows of all lengths up to its own, half of one to all of it."""
    for name in sizes.streams:
        joined = made(name, sizes.tuples)
        assert joined.window is not None
        db = _database(joined)
        for many in sizes.queries:
            windows = [joined.window / 1e9 * (k + 1) / many for k in range(many)]
            exact = sum(db.join("a", "b", on="k", window=each).run().estimate.value for each in windows)
            for budget in sizes.budgets:
                found = {}
                for guide in ("directory", "countsketch"):
                    queries = [
                        db.join("a", "b", on="k", window=each).prefer("desc").guided_by(guide).using(costs="engine")
                        for each in windows
                    ]
                    answers = db.standing(queries).run(budget)
                    found[guide] = sum(answer.to_arrow().num_rows for answer in answers)
                yield {
                    "streams": name, "queries": many, "budget": budget, "directory": found["directory"] / exact,
                    "countsketch": found["countsketch"] / exact,
                    "ratio": found["countsketch"] / max(1, found["directory"]),
                }  # fmt: skip


def _sketched(keys: Array) -> int:
    sketch, hasher = CountSketch(1, 1024), KeyHasher()
    for begin in range(0, keys.shape[0], _BATCH):
        sketch.summarize(hasher.words(keys[begin : begin + _BATCH]))
    return int(sketch.counters.nbytes)


def _listed(keys: Array) -> int:
    table, store = KeyTable(), TupleStore(default_spec(None, structure="T1"))
    for begin in range(0, keys.shape[0], _BATCH):
        part = keys[begin : begin + _BATCH]
        coded = table.encode(pa.array(part))
        at = store.extend(np.arange(part.shape[0]), coded.codes, coded.hashes, table.known)
        for first in range(at, store.tuples, PIECE):
            store.append(first, min(first + PIECE, store.tuples))
    return int(table.nbytes + store.directory_bytes)


def _kept_rows(sizes: Sizes) -> Iterator[dict[str, Any]]:
    """CPU time and bytes of either over even keys; what sliding sketches say of the total of two such streams."""
    for many in sizes.keys:
        rng = np.random.default_rng(many)
        left, right = (rng.integers(0, many, sizes.kept) for _ in range(2))
        took: dict[str, list[float]] = {"sketch": [], "directory": []}
        held = {}
        for _ in range(_ROUNDS):
            for name, kept in (("sketch", _sketched), ("directory", _listed)):
                began = time.process_time()
                held[name] = kept(left)
                took[name].append((time.process_time() - began) * 1e9 / sizes.kept)
        ts = np.arange(sizes.kept)
        keys = [pa.chunked_array([pa.array(each)]) for each in (left, right)]
        told = total_bounds([ts, ts], keys, _WINDOW)
        whole = _WINDOW * (2.0 * sizes.kept - _WINDOW) / many  # on average
        yield {
            "keys": many, "tuples": sizes.kept, "sketch_ns": median(took["sketch"]), "sketch_bytes": held["sketch"],
            "directory_ns": median(took["directory"]), "directory_bytes": held["directory"],
            "most": told.most / whole, "about": None if told.about is None else float(told.about.value) / whole,
            "bounds_bytes": told.bytes,
        }  # fmt: skip


def _measures(rows: list[dict[str, Any]]) -> Iterator[Measure]:
    standing = [row for row in rows if "queries" in row]
    for many in sorted({row["queries"] for row in standing}):
        ratios = [row["ratio"] for row in standing if row["queries"] == many]
        told = (
            f"{many} standing queries: pairs by countsketch over those by the directory, median of {len(ratios)} cells"
        )
        yield Measure.of(told, ratios, "", None)
    for row in rows:
        if "keys" in row:
            told = f"{row['keys']:,} keys: upkeep by directory over by sketch, CPU"
            yield Measure(told, row["directory_ns"] / row["sketch_ns"], "times")
            yield Measure(f"{row['keys']:,} keys: bytes of the directory", row["directory_bytes"] / 1e6, "MB")
            yield Measure(f"{row['keys']:,} keys: total of a join by sketches, at most", row["most"])
            if row["about"] is not None:
                yield Measure(f"{row['keys']:,} keys: the same, about", row["about"])


def measured(sizes: Sizes) -> Result:
    """All of it."""
    rows = [*_standing_rows(sizes), *_kept_rows(sizes)]
    return Result("guides", TITLE, "rows", len(rows), (), tuple(_measures(rows)), rows=tuple(rows))


BRIEF = Sizes(queries=(1, 64), keys=(1_000, 1_000_000))
FULL = Sizes(queries=(1, 4, 16, 64), keys=(1_000, 30_000, 1_000_000, 4_000_000), budgets=(0.05, 0.1, 0.2))


@benchmark("guides", TITLE, brief=partial(measured, BRIEF))
def guides() -> Result:
    """Some minutes."""
    return measured(FULL)
