"""Rows of an event that conditions keep: those of a loop, and the very same where all are kept."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from nile.exact.pipeline.schedule import Changes
from nile.execution.live.chosen import Sought
from nile.execution.live.event import Event

KEEPS = {"=": np.equal, "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal}


@pytest.mark.parametrize("nulls", [False, True])
@pytest.mark.parametrize("operator", sorted(KEEPS))
@pytest.mark.parametrize("constant", [-1, 0, 4, 9, 10])
def test_rows_that_conditions_keep_are_those_of_a_loop(nulls: bool, operator: str, constant: int) -> None:
    draw = np.random.default_rng(3)
    n, missing = draw.integers(0, 10, 50), np.arange(50) % 7 == 3 if nulls else np.zeros(50, bool)
    rows = pa.RecordBatch.from_arrays([pa.array(n, mask=missing), pa.array(np.arange(50))], names=["n", "at"])
    changes = Changes(np.arange(50), np.where(np.arange(50) % 3 == 0, -1, 1).astype(np.int8), rows)
    for also in ((), (Sought("at", ">=", 0),), (Sought("at", "<", 20),)):
        kept = KEEPS[operator](n, constant) & ~missing
        if also and also[0].operator == "<":
            kept &= np.arange(50) < 20
        found = Event(1, [changes]).where((Sought("n", operator, constant), *also))
        assert found is not None
        at = np.flatnonzero(kept)
        assert [each.ts.tolist() for each in found] == ([at.tolist()] if at.shape[0] else [])
        assert [each.sign.tolist() for each in found] == ([changes.sign[at].tolist()] if at.shape[0] else [])
        assert [each.rows.to_pylist() for each in found] == (
            [rows.take(pa.array(at)).to_pylist()] if at.shape[0] else []
        )
        assert (bool(found) and found[0] is changes) == kept.all()
