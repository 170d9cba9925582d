"""A family of made-up pairs of streams that nobody tuned for, and real retail: what the truth of answers is judged on.

Each is small enough to be joined exactly and asked hundreds of times.  Sizes are of both streams together; times are
in seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from nile.operators.inputs.joining import Joinable, Loaded
from nile.streams.accounting import Accounting

__all__ = ["FAMILY", "made", "real"]

Array = np.ndarray[Any, Any]
Side = tuple[Array, Any]
Made = tuple[Side, Side, float | None]
_SECOND = 1_000_000_000


def _zipf(rng: np.random.Generator, n: int, keys: int, skew: float) -> Array:
    weights = np.arange(1, keys + 1, dtype=np.float64) ** -skew
    return rng.choice(keys, n, p=weights / weights.sum())


def _even(rng: np.random.Generator, n: int, span: float = 1_000.0) -> Array:
    return np.sort(rng.random(n) * span)


def _both(rng: np.random.Generator, n: int, keys: Callable[[int], Array], window: float | None) -> Made:
    return (_even(rng, n), keys(n)), (_even(rng, n), keys(n)), window


def _drifting(rng: np.random.Generator, n: int) -> Made:
    left, right = _even(rng, n), _even(rng, n)
    return (
        (left, (left // 40).astype(int) + _zipf(rng, n, 30, 1.0)),
        (right, (right // 40).astype(int) + _zipf(rng, n, 30, 1.0)),
        60.0,
    )


def _two_scales(rng: np.random.Generator, n: int) -> Made:
    def keys(size: int) -> Array:
        return np.where(rng.random(size) < 0.5, rng.integers(0, 10, size), 10 + rng.integers(0, n, size))

    return _both(rng, n, keys, 200.0)


def _half(rng: np.random.Generator, n: int) -> Made:
    return _both(rng, n, lambda s: np.where(rng.random(s) < 0.5, 0, 1 + rng.integers(0, n // 4, s)), 50.0)


def _bursts(rng: np.random.Generator, n: int) -> Made:
    def times() -> Array:
        at = rng.integers(0, 12, n) * 80.0
        return np.sort(at + rng.exponential(4.0, n))

    return (times(), _zipf(rng, n, 300, 0.8)), (times(), _zipf(rng, n, 300, 0.8)), 5.0


def _sessions(rng: np.random.Generator, n: int) -> Made:
    def side() -> Side:
        key = rng.integers(0, n // 12, n)
        at = key * 12_000.0 / n + rng.exponential(10.0, n)
        order = np.argsort(at, kind="stable")
        return at[order], key[order]

    return side(), side(), 30.0


def _late_heavy(rng: np.random.Generator, n: int) -> Made:
    def side() -> Side:
        at = _even(rng, n)
        key = np.where((at > 900.0) & (rng.random(n) < 0.7), 0, 1 + rng.integers(0, 500, n))
        return at, key

    return side(), side(), 100.0


def _mostly_rare(rng: np.random.Generator, n: int) -> Made:
    return _both(rng, n, lambda s: np.where(rng.random(s) < 0.1, 0, 1 + rng.integers(0, n, s)), 400.0)


def _planted(rng: np.random.Generator, n: int) -> Made:
    def side(seed: int) -> Side:
        key = rng.integers(0, 20, n)
        rare = np.arange(n // 50)
        key[rare * 50 + seed] = 1_000 + rare
        return _even(rng, n), key

    return side(3), side(7), 60.0


def _lopsided(rng: np.random.Generator, n: int) -> Made:
    small = max(10, n // 10)
    return (
        (_even(rng, 2 * n - small), _zipf(rng, 2 * n - small, 400, 1.0)),
        (
            _even(rng, small),
            rng.integers(0, 400, small),
        ),
        300.0,
    )


def _opposite(rng: np.random.Generator, n: int) -> Made:
    return (_even(rng, n), _zipf(rng, n, 500, 1.2)), (_even(rng, n), 499 - _zipf(rng, n, 500, 1.2)), 200.0


def _unique(rng: np.random.Generator, n: int) -> Made:
    keys = n // 2
    return (_even(rng, keys), rng.permutation(keys)), (_even(rng, n), _zipf(rng, n, keys, 1.0)), None


def _floats(rng: np.random.Generator, n: int) -> Made:
    def side() -> Side:
        walk = 100.0 + np.round(np.cumsum(rng.normal(0.0, 0.01, n)), 2)
        return _even(rng, n), walk

    return side(), side(), 30.0


def _text(rng: np.random.Generator, n: int) -> Made:
    def side() -> Side:
        return _even(rng, n), [f"page/{key}" for key in _zipf(rng, n, 1_500, 1.0)]

    return side(), side(), 120.0


def _nulls(rng: np.random.Generator, n: int) -> Made:
    def side() -> Side:
        keys = _zipf(rng, n, 200, 0.7)
        return _even(rng, n), [None if gone else int(k) for k, gone in zip(keys, rng.random(n) < 0.4, strict=True)]

    return side(), side(), 50.0


def _ties(rng: np.random.Generator, n: int) -> Made:
    return (
        (np.floor(_even(rng, n) / 20) * 20, _zipf(rng, n, 300, 0.9)),
        (
            np.floor(_even(rng, n) / 20) * 20,
            _zipf(rng, n, 300, 0.9),
        ),
        20.0,
    )


FAMILY: dict[str, Callable[[np.random.Generator, int], Made]] = {
    "few keys": lambda r, n: _both(r, n, lambda s: r.integers(0, 8, s), 40.0),
    "few uneven keys": lambda r, n: _both(r, n, lambda s: _zipf(r, s, 6, 2.0), 40.0),
    "many keys": lambda r, n: _both(r, n, lambda s: r.integers(0, n, s), 300.0),
    "many keys, whole stream": lambda r, n: _both(r, n, lambda s: r.integers(0, n // 4, s), None),
    "zipf 0.5": lambda r, n: _both(r, n, lambda s: _zipf(r, s, 2_000, 0.5), 150.0),
    "zipf 1": lambda r, n: _both(r, n, lambda s: _zipf(r, s, 2_000, 1.0), 100.0),
    "zipf 1.5": lambda r, n: _both(r, n, lambda s: _zipf(r, s, 2_000, 1.5), 30.0),
    "near-empty": lambda r, n: _both(r, n, lambda s: r.integers(0, 40 * n, s), 500.0),
    "blow-up": lambda r, n: _both(r, n // 4, lambda s: r.integers(0, 2, s), None),
    "drifting": _drifting,
    "two scales": _two_scales,
    "one key is half": _half,
    "bursts": _bursts,
    "sessions": _sessions,
    "late heavy key": _late_heavy,
    "mostly rare keys": _mostly_rare,
    "planted rare keys": _planted,
    "lopsided": _lopsided,
    "opposite skew": _opposite,
    "unique on one side": _unique,
    "float keys": _floats,
    "text keys": _text,
    "null keys": _nulls,
    "tied times": _ties,
    "short window": lambda r, n: _both(r, n, lambda s: _zipf(r, s, 200, 0.8), 2.0),
    "hosts": lambda r, n: _both(r, n, lambda s: np.where(r.random(s) < 0.2, 0, _zipf(r, s, n // 2, 0.6)), 60.0),
}
"""Of each, from a generator and the tuples of a stream: both streams (times, keys) and the window."""


def _loaded(name: str, times: Array, keys: Any) -> Loaded:
    column = keys if isinstance(keys, pa.Array) else pa.array(keys)
    accounting = Accounting(tuples_in=len(column), applied=len(column))
    return Loaded(name, np.rint(times * _SECOND).astype(np.int64), pa.chunked_array([column]), accounting)


def made(name: str, tuples: int, seed: int = 0) -> Joinable:
    """A member of the family, of about `tuples` a stream; the same for the same arguments."""
    rng = np.random.Generator(np.random.PCG64([seed, sorted(FAMILY).index(name)]))
    left, right, window = FAMILY[name](rng, tuples)
    return Joinable(_loaded("left", *left), _loaded("right", *right), None if window is None else int(window * _SECOND))


def real(path: Path) -> dict[str, Joinable]:
    """Joins of the retail file: two virtual stores by item, within an hour and six, and invoices by customer."""
    table = pq.read_table(path, columns=["ts", "vstore", "item_id", "customer_id"])

    def side(store: int, key: str) -> Loaded:
        rows = table.filter(pc.equal(table["vstore"], store))
        times = rows["ts"].cast(pa.timestamp("ns")).cast(pa.int64()).to_numpy()
        column = rows[key].combine_chunks()
        return Loaded(
            f"store{store}", times, pa.chunked_array([column]), Accounting(tuples_in=len(column), applied=len(column))
        )

    hour = 3_600 * _SECOND
    return {
        "retail by item, 1 h": Joinable(side(0, "item_id"), side(1, "item_id"), hour),
        "retail by item, 6 h": Joinable(side(0, "item_id"), side(1, "item_id"), 6 * hour),
        "retail by customer, 6 h": Joinable(side(0, "customer_id"), side(0, "customer_id"), 6 * hour),
    }
