"""The multi-resolution index: nodes are sums of their children, bounds prune, covers are small, estimates unbiased."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nile.pyramid.grid import arrays as ga
from nile.pyramid.grid.index import PyramidIndex
from nile.pyramid.grid.manager import SummaryManager
from nile.pyramid.grid.spec import SummarySpec

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(7)
UNKNOWN = RNG.integers(0, 2**64, 300, dtype=np.uint64)
HALF = 1 << 62


def built(spec: SummarySpec, n: int = 12_000, gap: int = 10, keys: int = 400, seed: int = 0) -> SummaryManager:
    """A stream of Zipf keys whose hot ones change twice."""
    rng = np.random.default_rng(seed)
    drawn = (rng.zipf(1.3, n) + 17 * (np.arange(n) // 5_000)) % keys
    manager = SummaryManager(spec)
    manager.ingest(np.arange(n, dtype=np.int64) * gap, pa.array(drawn))
    return manager


specs = st.builds(
    SummarySpec,
    granularity=st.sampled_from([4_000, 30_000, 1_000_000]),
    rate=st.integers(2, 5),
    depth=st.integers(1, 3),
    rows=st.integers(1, 4),
    columns=st.sampled_from([1, 16]),
    max_zones=st.sampled_from([2, 4, 16]),
    max_length=st.sampled_from([None, 2_560, 6_000]),
    forgetting=st.booleans(),
    threshold=st.sampled_from([0.02, 0.3]),
)


@settings(max_examples=20)
@given(spec=specs, n=st.integers(1, 12_000))
def test_a_node_is_the_sum_of_its_children_and_bounds_them(spec: SummarySpec, n: int) -> None:
    manager = built(spec, n)
    hashes = np.concatenate([manager.keys.hashes(), UNKNOWN])
    for g in range(1, spec.depth + 1):
        index = manager.index(g)
        opened = manager.zones()[-1].summarised if g == 1 and manager.zones() and manager.zones()[-1].slot < 0 else 0
        for node in index.nodes:
            children = index.children(node)
            if not children:
                continue
            total = index.counters(children[0]) + index.counters(children[1])
            if node == 1 and g == 1:  # the root holds the open zone too
                assert (index.counters(1) - total).sum() == opened * total.shape[0]
                assert (index.counters(1) >= total).all()
            else:
                assert np.array_equal(index.counters(node), total)
            bound = index.upper_bound(node, hashes)
            for child in children:
                assert (index.upper_bound(child, hashes) <= bound).all()
                assert index.count(child) <= index.count(node)


@settings(max_examples=15)
@given(spec=specs, n=st.integers(1, 12_000), since=st.integers(-5, 130_000))
def test_a_cover_holds_each_tuple_since_then_once(spec: SummarySpec, n: int, since: int) -> None:
    manager = built(spec, n)
    node = manager.store.side.node
    for g in range(1, spec.depth + 1):
        index = manager.index(g)
        cover = index.cover(since)
        assert len(cover) <= 2 * int(math.log2(index.leaves)) + 1
        assert all(0 < share <= 1 for _, share in cover)
        held = sum(int(node[slot, ga.COUNT]) for slot, _ in cover)
        zones = [zone for zone in index.zones() if zone.last >= since]
        if (index.slot(1), 1.0) not in cover:
            zones = [zone for zone in zones if zone.slot >= 0]  # the open one is in no slot of its own
            assert [share < 1 for _, share in cover] == [node[slot, ga.FIRST] < since for slot, _ in cover]
        assert held == sum(zone.summarised for zone in zones)


def test_a_zone_cut_by_since_counts_for_the_share_of_its_time() -> None:
    manager = built(SummarySpec(granularity=1_000_000, max_length=2_550, structure="T3"), n=512)
    index = manager.index(1)
    first, second = index.zones()
    assert (first.first, first.last, second.first, second.last) == (0, 2_550, 2_560, 5_110)
    assert index.cover(0) == [(index.slot(1), 1.0)]
    assert index.cover(2_560) == [(second.slot, 1.0)]
    assert index.cover(2_550) == [(second.slot, 1.0), (first.slot, 1 / 2_551)] or index.cover(2_550) == [
        (first.slot, 1 / 2_551), (second.slot, 1.0)
    ]  # fmt: skip
    assert index.cover(5_110) == [(second.slot, 1 / 2_551)]
    assert index.cover(5_111) == []
    rows, bound = index.estimate(manager.keys.hashes(), 5_110)
    whole, whole_bound = index.estimate(manager.keys.hashes(), 2_560)
    assert np.allclose(rows, whole / 2_551)
    assert np.array_equal(bound, whole_bound)


def test_the_open_zone_is_estimated_as_the_root_without_its_children() -> None:
    spec = SummarySpec(granularity=1_000_000, max_length=2_550, structure="T3", columns=64)
    manager = SummaryManager(spec)
    keys = np.repeat([1, 2, 3], [256, 256, 100])
    manager.ingest(np.arange(612, dtype=np.int64) * 10, pa.array(keys))
    index = manager.index(1)
    assert [zone.slot < 0 for zone in index.zones()] == [False, False, True]
    rows, bound = index.estimate(manager.keys.hashes(), 5_120)
    assert bound.tolist() == [0, 0, 100]
    assert np.median(rows, axis=0).tolist() == [0, 0, 100]
    rows, bound = index.estimate(manager.keys.hashes(), 5_620)  # half of it
    assert bound.tolist() == [0, 0, 100]
    assert np.median(rows, axis=0)[2] == pytest.approx(100 * (6_110 - 5_620 + 1) / (6_110 - 5_120 + 1))


def test_estimates_are_unbiased_over_seeds() -> None:
    """Row sums have mean f and variance at most F2 / columns: over 60 seeds and 3 rows the mean is that close."""
    sigmas = 5.0
    n, seeds, columns = 2_000, 60, 32
    keys = np.random.default_rng(3).zipf(1.5, n) % 64
    true = np.bincount(keys, minlength=64)
    order = keys[np.sort(np.unique(keys, return_index=True)[1])]  # codes are given in order of appearance
    sums = np.zeros(len(order))
    for seed in range(seeds):
        spec = SummarySpec(granularity=6_000, depth=2, buckets=1, columns=columns, rows=3, structure="T3", seed=seed)
        manager = SummaryManager(spec)
        manager.ingest(np.arange(n, dtype=np.int64) * 10, pa.array(keys))
        assert len(manager.zones()) > 4
        parts = [manager.index(g).estimate(manager.keys.hashes(), -HALF)[0] for g in (1, 2)]
        sums += np.sum(parts, axis=0).mean(axis=0)
    error = math.sqrt(float((true**2).sum()) / columns / (3 * seeds))
    assert abs(sums / seeds - true[order]).max() < sigmas * error


def test_an_empty_granularity_has_no_zones_and_an_empty_cover() -> None:
    manager = SummaryManager(SummarySpec(granularity=1_000, depth=2))
    for g in (1, 2):
        assert manager.index(g).zones() == []
        assert manager.index(g).cover(-HALF) == []
        rows, bound = manager.index(g).estimate(UNKNOWN, -HALF)
        assert not rows.any()
        assert not bound.any()


def test_nodes_are_in_heap_order_and_leaves_have_no_children() -> None:
    index = SummaryManager(SummarySpec(granularity=1_000, max_zones=4, rate=3)).index(1)
    assert list(index.nodes) == [1, 2, 3, 4, 5, 6, 7]
    assert [index.children(node) for node in index.nodes] == [(2, 3), (4, 5), (6, 7), (), (), (), ()]
    assert [index.slot(node) for node in index.nodes] == list(range(7))
    second = SummaryManager(SummarySpec(granularity=1_000, max_zones=4, rate=3)).index(2)
    assert second.leaves == 4
    assert second.slot(1) == 7


@pytest.mark.parametrize("granularity", [0, 3, -1])
def test_a_granularity_that_is_not_there_is_refused(granularity: int) -> None:
    manager = SummaryManager(SummarySpec(granularity=1_000, depth=2))
    with pytest.raises(IndexError, match=rf"granularity: needed 1 to 2; got {granularity}"):
        PyramidIndex(manager.store, granularity)


def test_zones_of_a_granularity_follow_each_other() -> None:
    manager = built(SummarySpec(granularity=10_000, depth=3, rate=2))
    for g in (1, 2, 3):
        zones = manager.index(g).zones()
        assert zones
        assert all(a.end <= b.start and a.last <= b.first for a, b in pairwise(zones))
        assert all(manager.store.side.node[z.slot, ga.LAST] == z.last for z in zones if z.slot >= 0)
