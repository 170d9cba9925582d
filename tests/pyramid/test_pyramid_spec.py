"""A summary is checked before anything is built, and every mistake names the number to change."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nile.pyramid.grid import arrays as ga
from nile.pyramid.grid.manager import SummaryManager
from nile.pyramid.grid.spec import LONGEST, SummarySpec
from nile.pyramid.grid.store import TupleStore
from nile.summaries.errors import ConfigError, MemoryRefused, NileError

MISTAKES = {
    "granularity": [(0, r"from 1 to \d+; got 0; ns"), (LONGEST + 1, "got 4611686018427387905"), (1.5, "got 1.5"),
                    ("1 hour", "'1 hour'; ns, write a duration"), (True, "got True"), (None, "got None")],
    "rate": [(1, "from 2 to 4096; got 1; each granularity"), (4097, "got 4097")],
    "depth": [(0, "from 1 to 32; got 0"), (33, "got 33")],
    "structure": [("T5", "one of T1, T2, T3, T4; got 'T5'"), (4, "got 4")],
    "buckets": [(12, "power of two from 1 to 4096; got 12; try 8 or 16"), (0, "got 0"), (8192, "got 8192")],
    "rows": [(0, "from 1 to 15; got 0; 3 is the default"), (16, "got 16"), (3.0, "got 3.0")],
    "columns": [(48, "power of two from 1 to 1048576; got 48; try 32 or 64"), (-4, "got -4")],
    "confidence": [("adwin", "one of two-window, variance; got 'adwin'")],
    "threshold": [(1.0, r"a confidence in \[0, 1\); got 1.0; 0 never ends"), (float("nan"), "got nan"),
                  (-0.1, "got -0.1"), ("low", "got 'low'"), (False, "got False")],
    "max_length": [(0, "from 1 to .*; got 0; ns, leave it out"), ("1 min", "got '1 min'")],
    "forgetting": [("yes", "true or false; got 'yes'"), (1, "got 1")],
    "max_zones": [(1, "from 2 to 4096; got 1"), (6, "try 4 or 8")],
    "seed": [(1 << 64, "got 18446744073709551616"), ("a", "got 'a'")],
}  # fmt: skip


@pytest.mark.parametrize(("name", "value", "message"), [(n, v, m) for n, vs in MISTAKES.items() for v, m in vs])
def test_a_mistake_is_named_with_its_number_in_one_sentence(name: str, value: Any, message: str) -> None:
    options: dict[str, Any] = {"granularity": 1_000, name: value}
    with pytest.raises(ConfigError, match=rf"^summary {name}: needed .*{message}") as caught:
        SummarySpec(**options)
    assert isinstance(caught.value, NileError)
    assert "\n" not in str(caught.value)


def test_counters_that_could_not_fit_are_refused_with_what_would() -> None:
    with pytest.raises(MemoryRefused, match=r"columns=256 would fit"):
        SummarySpec(granularity=1_000, buckets=4096, columns=1 << 20)
    assert SummarySpec(granularity=1_000, buckets=4096, columns=256).counters <= 1 << 28
    with pytest.raises(MemoryRefused, match="lower depth, rate or max_zones"):
        SummarySpec(granularity=1_000, buckets=4096, columns=1, depth=32, rate=4096)


@given(
    rate=st.integers(2, 40),
    depth=st.integers(1, 6),
    max_zones=st.sampled_from([2, 4, 8]),
    structure=st.sampled_from(["T1", "T2", "T3", "T4"]),
)
def test_a_store_has_the_memory_that_its_spec_says(rate: int, depth: int, max_zones: int, structure: str) -> None:
    spec = SummarySpec(
        granularity=1_000, rate=rate, depth=depth, max_zones=max_zones, structure=structure, buckets=2, columns=2
    )
    side = TupleStore(spec).side
    assert side.counters.shape[0] == spec.zone_slots == len(side.node)
    assert (side.node == ga.NO_TUPLE).all()
    assert structure == "T1" or side.counters.size == spec.counters
    offsets = side.gran[:, ga.OFFSET].tolist()
    sizes = [2 * leaves - 1 for leaves in spec.leaf_capacity]
    assert offsets == [sum(sizes[:g]) for g in range(depth)]
    assert all(leaves >= spec.rate and leaves & (leaves - 1) == 0 for leaves in spec.leaf_capacity[1:])


def test_spans_grow_by_the_rate_and_add_up() -> None:
    spec = SummarySpec(granularity=3_600, rate=4, depth=3)
    assert [spec.span(g) for g in (1, 2, 3)] == [3_600, 14_400, 57_600]
    assert TupleStore(spec).side.gran[:, ga.SPAN].tolist() == [3_600, 14_400, 57_600]
    assert TupleStore(spec).side.gran[:, ga.REACH].tolist() == [3_600, 18_000, 75_600]


def test_spans_beyond_int64_stop_where_their_sum_still_fits() -> None:
    spec = SummarySpec(granularity=LONGEST, rate=4096, depth=12, buckets=1, columns=1, rows=1)
    gran = TupleStore(spec).side.gran
    assert (gran[:, ga.SPAN] > 0).all()
    assert sum(gran[:, ga.SPAN].tolist()) == gran[-1, ga.REACH] < 1 << 63


def test_t2_keeps_the_width_in_one_bucket_and_t1_keeps_no_sketch() -> None:
    t2, t4 = (SummarySpec(granularity=1_000, structure=name, buckets=8, columns=4) for name in ("T2", "T4"))
    assert (t2.value_buckets, t2.bucket_columns) == (1, 32)
    assert (t4.value_buckets, t4.bucket_columns) == (8, 4)
    assert t2.counters == t4.counters
    t1 = SummarySpec(granularity=1_000, structure="T1")
    assert t1.counters == 0
    assert TupleStore(t1).side.spec[ga.DETECTOR_BITS] == 0
    assert TupleStore(t4).side.detector.any() == np.False_


def test_max_length_is_a_quarter_of_the_granularity_unless_named() -> None:
    assert SummarySpec(granularity=1_000).zone_length == 250
    assert SummarySpec(granularity=1).zone_length == 1
    assert SummarySpec(granularity=1_000, max_length=7).zone_length == 7


def test_a_seed_draws_the_hash_functions_and_nothing_else_does() -> None:
    same = [SummaryManager(SummarySpec(granularity=g, seed=5)).store.side.multipliers.tolist() for g in (1, 2)]
    other = SummaryManager(SummarySpec(granularity=1, seed=6)).store.side.multipliers.tolist()
    assert same[0] == same[1] != other
    assert all(multiplier % 2 for multiplier in other)
