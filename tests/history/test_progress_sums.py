"""Sums by group that do not depend on order, and totals over blocks."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from nile.aggregates.linear import Units
from nile.operators.history.blocks import UnitTotals, blocks_of
from nile.operators.history.sums import DoubleSums, WholeSums

doubles = st.floats(allow_nan=False, allow_infinity=False)
ODD = [math.inf, -math.inf, math.nan, 5e-324, -0.0]


def plain(values: list[float]) -> float:
    finite = [value for value in values if math.isfinite(value)]
    if len(finite) < len(values):
        return sum(value for value in values if not math.isfinite(value))
    total = sum((Fraction(value) for value in values), Fraction(0))
    try:
        return float(total)
    except OverflowError:
        return math.inf if total > 0 else -math.inf


@settings(max_examples=150)
@given(
    values=st.lists(
        st.tuples(st.one_of(doubles, st.sampled_from(ODD)), st.integers(0, 2)),
        max_size=120,
    ),
    cut=st.integers(0, 120),
)
def test_sums_of_doubles_are_rounded_once(values: list[tuple[float, int]], cut: int) -> None:
    sums = DoubleSums()
    numbers, group = np.array([v for v, _ in values], np.float64), np.array([g for _, g in values], np.int64)
    sums.add(numbers[cut:], group[cut:], 3)
    sums.add(numbers[:cut], group[:cut], 3)
    for g, total in enumerate(sums.totals().tolist()):
        expected = plain([v for v, own in values if own == g])
        assert total == expected or (math.isnan(total) and math.isnan(expected))


@given(values=st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.integers(0, 1)), max_size=60))
def test_sums_of_whole_numbers_do_not_overflow(values: list[tuple[int, int]]) -> None:
    sums = WholeSums()
    for begin in range(0, len(values), 7):
        part = values[begin : begin + 7]
        sums.add(np.array([v for v, _ in part], np.int64), np.array([g for _, g in part], np.int64), 2)
    totals = [*sums.totals(), 0, 0][:2]
    assert totals == [sum(v for v, g in values if g == own) for own in range(2)]


@given(begin=st.integers(0, 5_000), tuples=st.integers(0, 300_000), seed=st.one_of(st.none(), st.integers(0, 9)))
def test_blocks_are_all_of_it_once(begin: int, tuples: int, seed: int | None) -> None:
    made = blocks_of(begin, begin + tuples, seed)
    assert int((made.end - made.begin).sum()) == tuples
    order = np.argsort(made.begin)
    ends = np.concatenate([[begin], made.end[order]])
    assert (made.begin[order] == ends[:-1]).all()
    sizes = (made.end - made.begin)[made.rest > 0 :]
    assert (sizes == made.size).all()
    assert made.units == sizes.shape[0]


def test_intervals_of_counts_are_certain_at_the_ends() -> None:
    made = blocks_of(0, 256 * 40 + 10, 1)
    totals = UnitTotals(made)
    none = np.zeros(0, np.int64)
    totals.add(none, Units.none(0))  # the rest: nobody in it
    for _ in range(3):
        totals.add(np.array([0]), Units(np.array([256.0]), np.array([1.0]), np.zeros(1)))
    (every,) = totals.counts(1, 0.95)
    assert every.low >= 3 * 256
    assert every.high == 40 * 256
    assert every.low < every.value <= every.high
