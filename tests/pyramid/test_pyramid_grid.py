"""Kernels of the grid: a tuple at a time or a run at a time is the same; roots; priority classes."""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nile.pyramid.grid import arrays as ga
from nile.pyramid.grid.arrays import Side
from nile.pyramid.grid.granularity import turn
from nile.pyramid.grid.grid_kernels import cell_of, reach, slice_end, summarize
from nile.pyramid.grid.list_kernels import append, is_full, make_room
from nile.pyramid.grid.manager import SummaryManager
from nile.pyramid.grid.region_kernels import density_class, root_estimate
from nile.pyramid.grid.spec import SLICE, SummarySpec
from nile.pyramid.grid.store import DETECTOR_COLUMNS, DETECTOR_ROWS, TupleStore
from nile.summaries.hashing import KeyTable

Array = np.ndarray[Any, Any]
ALL = ("counters", "node", "gran", "zone", "detector", "recent", "moments")


@numba.njit(nogil=True, error_model="numpy")  # type: ignore[untyped-decorator]
def one_by_one(s: Side, begin: int, end: int) -> int:
    """What a join operator does with each tuple of a stream; stops for a full arena (negative) or a turn."""
    for ordinal in range(begin, end):
        at = ordinal - s.meta[0]
        code = s.code[at]
        if code >= 0:
            if is_full(s, code) and not make_room(s, code):
                return -ordinal - 1
            append(s, code, ordinal)
            summarize(s, ordinal, s.ts[at], s.hash[at])
        if reach(s, ordinal, s.ts[at]) and slice_end(s, s.ts[at]):
            return ordinal + 1
    return end


@numba.njit(nogil=True, error_model="numpy")  # type: ignore[untyped-decorator]
def ask_roots(s: Side, g: int, hashes: Array, out: Array, cells: Array) -> None:
    for i in range(hashes.shape[0]):
        out[i, 0], out[i, 1] = root_estimate(s, g, hashes[i], s.counters.shape[1])
        for r in range(cells.shape[1]):
            cells[i, r] = cell_of(s, r, hashes[i])


@numba.njit(error_model="numpy")  # type: ignore[untyped-decorator]
def classes(priorities: Array, out: Array) -> None:
    for i in range(priorities.shape[0]):
        out[i] = density_class(priorities[i])


def operate(store: TupleStore, begin: int) -> None:
    while begin < store.tuples:
        done = one_by_one(store.side, begin, store.tuples)
        if done < 0:
            begin = -done - 1
            store.grow_arena(store.code_of(begin))
        else:
            if store.side.zone[ga.ENDING]:
                turn(store.side)
            begin = done


def drifting(n: int, gap: int, seed: int = 0) -> tuple[Array, pa.Array]:
    rng = np.random.default_rng(seed)
    keys = rng.zipf(1.4, n) % 200 + 1000 * (np.arange(n) // 3000)
    return np.arange(n, dtype=np.int64) * gap, pa.array(keys, mask=keys % 11 == 3)


@settings(max_examples=12)
@given(
    structure=st.sampled_from(["T1", "T2", "T3", "T4"]),
    confidence=st.sampled_from(["two-window", "variance"]),
    gap=st.sampled_from([0, 1, 10]),
    cut=st.integers(0, 9_000),
)
def test_a_tuple_at_a_time_is_a_run_at_a_time(structure: str, confidence: str, gap: int, cut: int) -> None:
    spec = SummarySpec(granularity=20_000, depth=2, structure=structure, confidence=confidence, max_zones=4, rows=2)
    ts, column = drifting(9_000, gap)
    keys = KeyTable()
    encoded = keys.encode(column)
    store = TupleStore(spec)
    for part in (slice(0, cut), slice(cut, None)):
        begin = store.extend(ts[part], encoded.codes[part], encoded.hashes[part], keys.known)
        operate(store, begin)
    manager = SummaryManager(spec, keys)
    manager.ingest_encoded(ts, encoded)
    for name in ALL:
        assert getattr(manager.store.side, name).tobytes() == getattr(store.side, name).tobytes(), name
    if structure == "T4" and confidence == "two-window":
        assert manager.changes >= 1


def test_runs_of_few_and_of_many_distinct_keys_are_counted_alike() -> None:
    spec = SummarySpec(granularity=1_000_000, structure="T3")
    index = SummaryManager(spec).index(1)
    for keys in (np.arange(5_000) % 7, np.arange(5_000)):
        manager = SummaryManager(spec)
        manager.ingest(np.zeros(5_000, np.int64), pa.array(keys, mask=keys % 5 == 2))
        hashes = manager.keys.encode(pa.array(keys[keys % 5 != 2])).hashes
        counters = np.zeros_like(index.counters(1))
        for r, cells in enumerate(index.cells(hashes).T):
            np.add.at(counters[r], cells, 1)
        assert np.array_equal(manager.index(1).counters(1), counters)


@pytest.mark.parametrize("spec", [
    SummarySpec(granularity=50_000, buckets=1, columns=1, rows=1),
    SummarySpec(granularity=50_000, buckets=1, columns=64),
    SummarySpec(granularity=50_000, buckets=64, columns=1, rows=4),
    SummarySpec(granularity=50_000, buckets=4096, columns=8, rows=5, rate=2, max_zones=2),
    SummarySpec(granularity=50_000, structure="T2", rows=7),
    SummarySpec(granularity=50_000, structure="T1"),
])  # fmt: skip
def test_a_root_tells_the_median_of_its_rows_and_the_least_half(spec: SummarySpec) -> None:
    manager = SummaryManager(spec)
    ts, column = drifting(12_000, 10)
    manager.ingest(ts, column)
    hashes = manager.keys.hashes()
    for g in (1, 2):
        index = manager.index(g)
        rows = index.counters(1).shape[0]
        out, cells = np.zeros((len(hashes), 2)), np.zeros((len(hashes), rows), np.int64)
        ask_roots(manager.store.side, g - 1, hashes, out, cells)
        assert np.array_equal(cells, index.cells(hashes))
        assert cells.min(initial=0) >= 0
        assert cells.max(initial=0) < index.counters(1).shape[1]
        counters = index.counters(1)
        own = np.array([counters[r, cells[:, r]] for r in range(rows)])
        other = np.array([counters[r, cells[:, r] ^ 1] for r in range(rows)])
        assert np.array_equal(out[:, 1], own.min(axis=0))
        assert np.array_equal(out[:, 0], np.clip(np.median(own - other, axis=0), 0, own.min(axis=0)))
        assert np.array_equal(out[:, 1], index.upper_bound(1, hashes))


def test_a_cell_lies_in_the_bucket_of_its_key() -> None:
    index = SummaryManager(SummarySpec(granularity=1, buckets=8, columns=16)).index(1)
    hashes = np.random.default_rng(1).integers(0, 2**64, 1_000, dtype=np.uint64)
    cells = index.cells(hashes)
    assert (cells // 32 == (hashes >> np.uint64(61)).astype(np.int64)[:, None]).all()
    # Every column and both signs are used about equally: within 6 standard deviations of binomial counts.
    used = np.bincount(cells[:, 0] % 32, minlength=32)
    assert abs(used - 1_000 / 32).max() < 6 * math.sqrt(1_000 / 32)


def test_a_slice_end_charges_two_passes_over_the_detector_under_t4_only() -> None:
    for structure, passes in (("T4", 2), ("T3", 0), ("T2", 0), ("T1", 0)):
        manager = SummaryManager(SummarySpec(granularity=1_000_000, structure=structure))
        manager.ingest(np.zeros(3 * SLICE, np.int64), pa.array(np.arange(3 * SLICE) % 5))
        assert manager.store.side.zone[ga.ADDS] == 3 * passes * DETECTOR_ROWS * DETECTOR_COLUMNS
        assert manager.store.side.zone[ga.SLICE_COUNT] == 0


def test_the_detector_stays_within_its_counters() -> None:
    """Tuples beyond 2**30 in one slice leave it alone, and a zone of that many ends."""
    store = TupleStore(SummarySpec(granularity=1_000_000, threshold=0.0))
    store.extend(np.zeros(SLICE, np.int64), np.zeros(SLICE, np.int32), np.ones(SLICE, np.uint64), 1)
    store.side.zone[ga.SLICE_COUNT] = 1 << 30
    operate(store, 0)
    assert store.side.zone[ga.ENDING] == 0  # turned
    assert store.side.zone[ga.ZONE_COUNT] == 0
    assert store.side.zone[ga.CHANGES] == 0
    assert not store.side.detector.any()
    assert store.side.zone[ga.REFERENCE] == 0


def test_null_tuples_move_the_clock_and_nothing_else() -> None:
    manager = SummaryManager(SummarySpec(granularity=1_000_000))
    manager.ingest(np.arange(600, dtype=np.int64), pa.nulls(600, pa.int64()))
    assert manager.store.side.zone[ga.NOW] == 599
    assert manager.store.side.node[0, ga.COUNT] == 0


@given(st.lists(st.floats(allow_nan=True, allow_infinity=False), min_size=1, max_size=20))
def test_classes_are_quarters_of_an_octave(priorities: list[float]) -> None:
    out = np.zeros(len(priorities), np.int64)
    classes(np.array(priorities), out)
    for priority, found in zip(priorities, out.tolist(), strict=True):
        if not priority > 0:
            assert found == 0
            continue
        if 2.0**-8 < priority < 2.0**22:
            assert 2.0 ** ((found - 36) / 4) <= priority * (1 + 1e-12)
            assert priority < 2.0 ** ((found - 35) / 4) * (1 + 1e-12)
        assert found == max(1, min(127, found))


def test_classes_order_priorities_and_keep_a_fade_of_four_fifths_apart() -> None:
    priorities = np.array([-1.0, 0.0, 5e-324, 2.0**-9, 0.5, 0.8, 1.0, 1.25, 2.0, 2.0**22, 1e308])
    out = np.zeros(len(priorities), np.int64)
    classes(priorities, out)
    assert out.tolist() == [0, 0, 1, 1, 32, 34, 36, 37, 40, 124, 127]
