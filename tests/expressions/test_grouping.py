"""Groups and rows are numbered by their first appearance, null a value like others, however far apart values are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from nile.expressions.conditions import parse_value
from nile.operators.common.rows import groups, row_codes
from nile.operators.inputs.aggregating import grouped
from nile.operators.inputs.loading import Columns
from nile.streams.accounting import Accounting
from nile.summaries.hashing import PUBLIC


@pytest.mark.parametrize("far", [1, 10**15])
@pytest.mark.parametrize("by", [("k",), ("k", "m"), ("m", "k", "w")])
def test_groups_are_those_of_a_dictionary(by: tuple[str, ...], far: int) -> None:
    for seed in range(4):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(1, 300))
        columns: dict[str, Any] = {
            "k": pa.array(rng.integers(0, 40, n) * far, mask=rng.random(n) < 0.1),
            "m": pa.array([f"m{i}" for i in rng.integers(0, 9, n)]),
            "w": pa.array(rng.integers(0, 300, n) / 7.0),
        }
        batch = pa.RecordBatch.from_pydict(columns)
        given = Columns("s", np.arange(n), batch, Accounting(), PUBLIC)
        number, groups, named = grouped([parse_value(name, where="by") for name in by], given, "here")
        rows = list(zip(*(columns[name].to_pylist() for name in by), strict=True))
        known = list(dict.fromkeys(rows))
        assert number.tolist() == [known.index(row) for row in rows]
        assert groups == len(known)
        assert list(zip(*(named[name].to_pylist() for name in by), strict=True)) == known


@pytest.mark.parametrize("most", [1, 3, 400, 70_000, 10**12])
def test_rows_have_codes_by_first_appearance_and_come_in_order_of_their_group(most: int) -> None:
    for seed in range(5):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(1, 2_000))
        columns = [rng.integers(0, most, n), rng.integers(0, 3, n)]
        codes, first = row_codes([pa.array(column) for column in columns], n)
        rows = list(zip(*(column.tolist() for column in columns), strict=True))
        known = {row: code for code, row in enumerate(dict.fromkeys(rows))}
        assert codes.tolist() == [known[row] for row in rows]
        assert first.tolist() == [rows.index(row) for row in known]
        for count in (len(known), len(known) + 3, 100_000):  # groups may be empty; more than 16 bits tell
            order, begins = groups(codes, count)
            assert order.tolist() == sorted(range(n), key=lambda row, codes=codes: codes[row])  # type: ignore[misc]
            assert begins.tolist() == np.searchsorted(codes[order], np.arange(count + 1)).tolist()
    assert row_codes([pa.array([], pa.int64())], 0)[1].shape == (0,)
