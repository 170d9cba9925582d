"""The whole numbers that values are sorted by, against ranks of the values themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from nile.execution.over.ordering import order_of
from nile.expressions.tree import Column
from nile.operators.common.rows import ordered, ranks
from nile.sql.columns import SortKey

Array = np.ndarray[Any, Any]
INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
FLOATS = [pa.float16(), pa.float32(), pa.float64()]
TIMES = [
    *(kind(unit) for kind in (pa.timestamp, pa.duration) for unit in ("s", "ms", "us", "ns")),
    pa.timestamp("us", "UTC"), pa.date32(), pa.date64(), pa.time32("s"), pa.time64("us"),
]  # fmt: skip


def _values(kind: pa.DataType) -> pa.Array:
    """Extremes, each more than once, in no order, with nulls."""
    rng = np.random.default_rng(3)
    if pa.types.is_integer(kind):
        info = np.iinfo(kind.to_pandas_dtype())
        few: Array = np.array([info.min, info.max, 0, 1, 5, info.max - 1], kind.to_pandas_dtype())
    elif pa.types.is_floating(kind):
        few = np.array([0.0, -0.0, 1.5, -1.5, np.inf, -np.inf, np.nan, -np.nan, 5e-3, -6e4], kind.to_pandas_dtype())
    elif pa.types.is_temporal(kind):
        few = np.array([0, 1, 86_399, 7]) if pa.types.is_time(kind) else np.array([-86_400_000, 0, 86_400_000 * 9])
        narrow = pa.array(few, pa.int32() if kind.bit_width == 32 else pa.int64())
        return _dealt(narrow.view(kind), rng)
    else:
        return _dealt(pa.array(["b", "", "ab", "ä", "a"] if pa.types.is_string(kind) else [True, False], kind), rng)
    return _dealt(pa.array(few), rng)


def _dealt(few: pa.Array, rng: np.random.Generator) -> pa.Array:
    return few.take(pa.array(rng.integers(0, len(few), 60), mask=rng.random(60) < 0.1)).slice(3)


@pytest.mark.parametrize("kind", [*INTEGERS, *FLOATS, *TIMES, pa.bool_(), pa.string()], ids=str)
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("nulls_last", [False, True])
def test_numbers_that_order_as_the_values_do(kind: pa.DataType, descending: bool, nulls_last: bool) -> None:
    values = _values(kind)
    rank = ranks(values)
    there = rank >= 0
    assert 0 < np.count_nonzero(there) < len(values)
    places = ordered(values)
    assert places.dtype == np.int64
    assert np.array_equal(
        np.unique(places[there], return_inverse=True)[1], np.unique(rank[there], return_inverse=True)[1]
    )
    null = (rank < 0) != nulls_last
    expected = sorted(range(len(values)), key=lambda i: (not null[i], -rank[i] if descending else rank[i]))
    key = SortKey(Column("x"), descending, nulls_last)
    assert order_of([key], pa.record_batch({"x": values})).tolist() == expected


def test_of_nothing_but_nulls_rows_stay_as_they_are() -> None:
    for column in (pa.nulls(4), pa.nulls(4, pa.float64()), pa.nulls(4, pa.string())):
        assert order_of([SortKey(Column("x"))], pa.record_batch({"x": column})).tolist() == [0, 1, 2, 3]
