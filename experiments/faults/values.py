"""Keys that are easily got wrong: NaN, infinities, -0.0, nulls, empty and huge text, surrogates, NUL, normal forms."""

from __future__ import annotations

import math
import struct
from collections import Counter
from functools import cache
from typing import Any

import numpy as np

from nile.engine.database import Database
from nile.experiments.faults.fault import Fault, Wrong, expect, generator
from nile.summaries.errors import NileError
from nile.summaries.exact import ExactCounter
from nile.summaries.hashing import KeyHasher, hash_keys
from nile.summaries.heavy import duckdb, pa

__all__ = ["FAULT"]

_NAME = "values"
_WINDOW = 20
_NANS = [struct.unpack("<d", struct.pack("<Q", bits))[0] for bits in (0x7FF8000000000000, 0xFFF8000000000001)]
_FLOATS = [*_NANS, math.inf, -math.inf, 0.0, -0.0, 5e-324, -5e-324, 1.0, 1.0 + 2**-52, 1e308, 0.1]
_TEXTS = [
    "", " ", "\0", "a\0", "a\0b", "a", "A", "\u00e9", "e\u0301", "\u212b", "\u00c5", "A\u030a",
    "\U0001f600", "\ufeff", "\u200b",
    "NaN", "null", "0", "-0", "'; DROP TABLE l; --", "\r\n", "\ud7ff", "\ue000", "\uffff", "\U0010ffff",
]  # fmt: skip
_MEGABYTE = "x" * 1_000_000


def attempt(seed: int) -> None:
    """A join, groups and counts over such keys; keys that are no text are refused by name."""
    _check(seed, lambda column: column)


def control(seed: int) -> None:
    """The same, with keys that were altered on the way as a careless engine would: zeros told apart, text stripped."""

    def careless(column: Any) -> Any:
        if pa.types.is_floating(column.type):
            return pa.array([None if v is None else repr(v) for v in column.to_pylist()])
        if pa.types.is_binary(column.type):
            return pa.array([None if v is None else v.strip(b"\0 ") for v in column.to_pylist()])
        return pa.array([None if v is None else v.strip("\0 ").casefold() for v in column.to_pylist()])

    _check(seed, careless)


def _check(seed: int, column: Any) -> None:
    rng = generator(_NAME, seed)
    keys, kind = _keys(rng, huge=seed % 50 == 7)
    sides = {}
    for name in ("l", "r"):
        n = int(rng.integers(12, 30))
        values = [keys[i] for i in rng.integers(0, len(keys), n).tolist()] + [keys[0], keys[1]]
        at = np.sort(rng.integers(0, 60, n + 2))
        sides[name] = (at, values, pa.array(values, kind))
    with Database() as db:
        for name, (at, _, key) in sides.items():
            db.register(name, pa.table({"t": at, "k": column(key)}), time="t")
        must = _joined(sides)
        told = db.join("l", "r", on="k", window=_WINDOW).run().to_arrow()
        found = set(zip(told["left_ordinal"].to_pylist(), told["right_ordinal"].to_pylist(), strict=True))
        expect(found == must, f"{len(found ^ must)} pairs of the join are wrong")
        counts = Counter(_same(value) for value in sides["l"][1])
        grouped = db.sql("SELECT k, count(*) AS n FROM l GROUP BY k").to_arrow()
        groups = Counter(dict(zip(map(_same, grouped["k"].to_pylist()), grouped["n"].to_pylist(), strict=True)))
        expect(grouped.num_rows == len(counts) and groups == counts, f"groups {groups}, must be {counts}")
        sums = Counter({_same(key): n for key, n in _asked(sides["l"][2])})
        expect(sums == counts, f"DuckDB groups otherwise: {sums}")
    _counted(sides["l"][2], sides["l"][1])
    _refused(rng)


def _counted(column: Any, values: list[Any]) -> None:
    """What a summary counts, by hash."""
    counter = ExactCounter()
    hashes = hash_keys(column, KeyHasher())
    counter.summarize(hashes[column.is_valid().to_numpy(zero_copy_only=False)])
    counts = Counter(_same(value) for value in values if value is not None)
    for value, hashed, estimate in zip(values, hashes, np.asarray(counter.estimate(hashes).value), strict=True):
        if value is not None:
            expect(estimate == counts[_same(value)], f"key {value!r:.40}, hash {hashed}: counted {estimate}")


def _refused(rng: np.random.Generator) -> None:
    """A lone surrogate is no text: it is refused by an error of Nile, and nothing is taken."""
    with Database() as db:
        db.stream("s", [("t", pa.int64()), ("k", pa.string())], time="t")
        lone = chr(int(rng.integers(0xD800, 0xE000)))
        try:
            db.push("s", {"t": [1, 2], "k": ["a", f"b{lone}"]})
        except NileError:
            expect(db.accounting("s").tuples_in == 0, "rows were taken from a batch that was refused")
            return
        raise Wrong("a lone surrogate was taken for text")


def _keys(rng: np.random.Generator, *, huge: bool) -> tuple[list[Any], Any]:
    """Values to choose keys from, two of them that a careless engine confuses first."""
    which = int(rng.integers(4))
    if which == 0:
        return [0.0, -0.0, *_FLOATS, None], pa.float64()
    if which == 1:
        return [
            0.0,
            -0.0,
            *(float(np.float32(x)) for x in (*_NANS, math.inf, -math.inf, 1.0, 0.1, 1e-45)),
            None,
        ], pa.float32()
    texts = ["a", "a\0", *_TEXTS, None]
    if huge:
        texts += [_MEGABYTE, _MEGABYTE + "\0", _MEGABYTE[:-1] + "y"]
    if which == 2:
        return texts, pa.string()
    raw = [None if text is None else text.encode("utf-8", "surrogatepass") for text in texts]
    return [*raw, b"\xff", b"\xc3\x28", b"\xed\xa0\x80"], pa.binary()


def _same(value: Any) -> Any:
    """Equal exactly when two keys are equal, as section 2 of the design has it."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value


def _joined(sides: dict[str, Any]) -> set[tuple[int, int]]:
    """The oracle: every pair is looked at."""
    (lt, lk, _), (rt, rk, _) = sides["l"], sides["r"]
    return {
        (i, j)
        for i, a in enumerate(lk)
        for j, b in enumerate(rk)
        if a is not None and b is not None and _same(a) == _same(b) and abs(int(lt[i]) - int(rt[j])) <= _WINDOW
    }


@cache
def _duck() -> Any:
    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    return connection


def _asked(column: Any) -> list[Any]:
    _duck().register("groups", pa.table({"k": column}))
    return list(_duck().execute("SELECT k, count(*) FROM groups GROUP BY k").fetchall())


FAULT = Fault(
    _NAME, "NaN, infinities, -0.0, nulls, empty and 1 MB text, surrogates, NUL, normal forms", "as the design's keys",
    attempt, control, full=10_000, small=60,
)  # fmt: skip
