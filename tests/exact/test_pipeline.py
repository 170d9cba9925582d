"""Continuous queries: what each change is, and when."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nile.exact.pipeline.pipeline import Pipeline
from nile.exact.plan.algebra import Aggregate, Group, Range, Scan, Select

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
