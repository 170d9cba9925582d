"""Continuous queries: what each change is, and when."""

from __future__ import annotations

import math
import operator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from nile.exact.pipeline.pipeline import Pipeline
from nile.exact.pipeline.sources.incoming import selected
from nile.exact.plan.algebra import Aggregate, Group, Range, Scan, Select
from nile.exact.plan.comparing import Compared, Comparing
from nile.exact.state.columns import columns_of

SALES = pa.schema([("price", pa.int64())])


def test_the_papers_first_example_reports_28_22_13_and_20() -> None:
    """Negative tuples, Figure 1: T1 to T6 are 6 to 11; 6 leaves at T2, 9 right after, 7 comes at T5."""
    plan = Group(
        Select(Scan("sales", SALES, Range(5), 0), lambda rows: pc.greater(rows["price"], 4)),
        (),
        (Aggregate("total", "sum", "price"),),
    )
    pipeline = Pipeline(plan)
    price = [6, 9, 3, 4, 5, 8, 2, 3, 4, 7]
    out = pipeline.push("sales", np.arange(1, 11), pa.record_batch([price], schema=SALES)) + pipeline.finish()
    totals = {
        ts: total
        for each in out
        for ts, sign, total in zip(each.ts.tolist(), each.sign.tolist(), each.rows["total"].to_pylist(), strict=True)
        if sign > 0
    }
    assert {at: total for at, total in totals.items() if at >= 6} == {6: 28, 7: 22, 8: 13, 10: 20}


def test_times_centuries_apart_are_in_order_though_their_difference_fits_no_int64() -> None:
    early, late = -6_917_529_027_641_081_855, 4_611_686_018_427_387_904
    pipeline = Pipeline(Select(Scan("sales", SALES, Range(5), 0), lambda rows: pc.greater(rows["price"], 4)))
    out = pipeline.push("sales", np.array([early, late, late + 1]), pa.record_batch([[5, 6, 7]], schema=SALES))
    out += pipeline.finish()
    told = [(ts, sign) for each in out for ts, sign in zip(each.ts.tolist(), each.sign.tolist(), strict=True)]
    assert told[:4] == [(early, 1), (early + 6, -1), (late, 1), (late + 1, 1)]


_ORDER = {"=": operator.eq, "<>": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_ODD = [0.0, -0.0, 1.5, math.nan, math.inf, -math.inf, 2.0, -3.25]


def _place(number: float) -> tuple[bool, float]:
    """Where a number stands: NaN is one, and after all others."""
    return math.isnan(number), 0.0 if math.isnan(number) else number


@pytest.mark.parametrize("sign", _ORDER)
@pytest.mark.parametrize("number", [0, 2, 1.5, -0.0, math.inf, 2**62])
def test_comparisons_with_numbers_are_those_of_each_row(sign: str, number: float) -> None:
    rows = pa.record_batch({"v": _ODD, "i": pa.array([0, 1, 2, 3, -5, 2**62, 2**63 - 1, -(2**63)])})
    column = "i" if isinstance(number, int) else "v"
    kept = [k for k, each in enumerate(rows.column(column).to_pylist()) if _ORDER[sign](_place(each), _place(number))]
    comparing = Comparing([Compared(column, sign, number)], lambda _: pytest.fail("asked Arrow"))
    for given in (rows, columns_of(rows)):
        assert np.flatnonzero(selected(given, comparing)).tolist() == kept


def test_comparisons_are_told_by_arrow_where_there_are_nulls_or_other_types() -> None:
    asked: list[pa.RecordBatch] = []

    def otherwise(rows: pa.RecordBatch) -> pa.BooleanArray:
        asked.append(rows)
        return pc.greater(rows.column(0), 1)

    comparing = Comparing([Compared("v", ">", 1.0), Compared("v", "<=", 2.5)], otherwise)
    plain = pa.record_batch({"v": [1.0, 2.0, 3.0]})
    assert selected(plain, comparing).tolist() == [False, True, False]
    assert not asked
    for odd in ([1.0, None, 3.0], pa.array([1.0, 0.0, 3.0], pa.float32()), pa.array([1, 0, 3])):
        rows = pa.record_batch({"v": odd})
        assert selected(rows, comparing).tolist() == [False, False, True]
        assert asked.pop().equals(rows)
    assert selected(plain, comparing).tolist() == [False, True, False]
