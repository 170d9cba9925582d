"""Groups are numbered by their first appearance, null a value like others, however far apart values are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from nile.expressions.conditions import parse_value
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
