"""Outliers are counted without the tuples whose key the other stream lacks: the same pairs as with them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import nile
from nile.operators.strategies.counted import CountedJoin, counted_shared

Array = np.ndarray[Any, Any]
N = 4_000
KEYS = {
    "int, far apart": lambda numbers: pa.array(numbers * 1_000_003),
    "int": pa.array,
    "int below 0": lambda numbers: pa.array(-numbers),
    "float": lambda numbers: pa.array(numbers / 7.0),
    "text": lambda numbers: pa.array(numbers).cast(pa.string()),
    "with nulls": lambda numbers: pa.array(np.where(numbers % 5 == 0, None, numbers)).cast(pa.int64()),
}


def joined(kind: str, shared: float, seed: int, window: float | None) -> Any:
    draw = np.random.default_rng(seed)
    db = nile.connect()
    for name, begin in (("a", 0), ("b", round((1.0 - shared) * 1_500))):
        ts = np.sort(draw.integers(0, 2_000, N)) * 1.0
        db.register(name, pa.table({"ts": ts, "k": KEYS[kind](begin + draw.integers(0, 1_500, N))}), time="ts")
    return db.join("a", "b", on="k", window=window).run().joined


def pairs(counted: CountedJoin, cap: int) -> set[tuple[int, int]]:
    found: set[tuple[int, int]] = set()
    for left, right in counted.written(counted.outliers(cap), 1 << 40):
        found |= set(zip(left.tolist(), right.tolist(), strict=True))
    return found


@pytest.mark.parametrize("window", [None, 60.0])
@pytest.mark.parametrize("shared", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("kind", KEYS)
def test_the_outliers_are_those_of_all_tuples(
    kind: str, shared: float, window: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Of keys far apart a hash tells, and one in thirty factors tells those of such a progression too badly to sift by.
    monkeypatch.setattr("nile.exact.join.shared.FACTORS", np.array([0x9E3779B97F4A7C15] * 3, np.uint64))
    whole, part = (
        made(joined(kind, shared, 7, window)) for made in (lambda two: CountedJoin(two.exact), counted_shared)
    )
    assert part.pairs == whole.pairs
    assert (part.side.shape[0] < whole.side.shape[0]) == (shared < 0.8)
    for cap in (2, 4, 9):
        assert pairs(part, cap) == pairs(whole, cap)


def test_the_first_of_an_answer_in_order_are_its_first() -> None:
    draw = np.random.default_rng(5)
    db = nile.connect()
    for name, begin in (("a", 0), ("b", 1_200)):
        ts = np.sort(draw.integers(0, 2_000, N)) * 1.0
        db.register(name, pa.table({"ts": ts, "k": (begin + draw.integers(0, 1_500, N)) * 1_000_003}), time="ts")
    query = db.join("a", "b", on="k", window=60.0).prefer("asc", outlier_cap=4)
    whole, few = query.run().to_arrow(), query.limit(50).run().to_arrow()
    counted = CountedJoin(query.run().joined.exact)
    assert (len(whole), len(few)) == (len(pairs(counted, 4)), 50)
    assert few.equals(whole.slice(0, 50))
