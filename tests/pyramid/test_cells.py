"""Grids whose zones hold summaries of any kind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from nile.pyramid.grid.cells import CellManager
from nile.pyramid.grid.manager import SummaryManager
from nile.pyramid.grid.spec import SummarySpec
from nile.summaries.catalogue import CATALOGUE, make_summary
from nile.summaries.hashing import hash_keys

Array = np.ndarray[Any, Any]
KINDS = [kind for kind in sorted(CATALOGUE) if kind not in ("hll", "frequent")]
SPEC = SummarySpec(granularity=2_000, rate=3, depth=3, structure="T4", max_length=500, max_zones=8)
SMALL: dict[str, dict[str, int]] = {"countsketch": {"columns": 64}, "countmin": {"columns": 64}}


def stream(seed: int, n: int = 9_000) -> tuple[Array, pa.Array]:
    draw = np.random.default_rng(seed)
    keys = draw.zipf(1.4, n) % 200 + np.where(np.arange(n) > n // 2, 1_000, 0)
    mask = draw.random(n) < 0.05
    return np.arange(n, dtype=np.int64) * 10, pa.array(keys.astype(float), mask=mask)


def made(kind: str, seed: int = 1, parts: int = 1) -> CellManager:
    manager = CellManager(SPEC, None, make_summary(kind, **SMALL.get(kind, {})))
    ts, keys = stream(seed)
    for at in np.array_split(np.arange(ts.shape[0]), parts):
        if at.shape[0]:
            manager.ingest(ts[at], keys.take(pa.array(at)))
    return manager


@pytest.mark.parametrize("kind", KINDS)
def test_zones_are_those_of_every_grid_and_their_summaries_say_what_came(kind: str) -> None:
    manager = made(kind)
    plain = SummaryManager(SPEC)
    ts, keys = stream(1)
    plain.ingest(ts, keys)
    bounds = [(z.granularity, z.start, z.end, z.first, z.last, z.summarised) for z in plain.zones()]
    assert [(z.granularity, z.start, z.end, z.first, z.last, z.summarised) for z in manager.zones()] == bounds
    assert len(bounds) > 6
    assert {z.granularity for z in manager.zones()} == {1, 2, 3}
    for zone in manager.zones():
        assert manager.cells[zone.start].total == zone.summarised
    counts = keys.value_counts()
    named = [(value.as_py(), n.as_py()) for value, n in zip(*counts.flatten(), strict=True) if value.is_valid]
    hashes = hash_keys(pa.array([value for value, _ in named]))
    told = manager.estimate(hashes)
    truth = np.array([float(n) for _, n in named])
    assert bool(told.covers(truth).all())
    if kind == "exact":
        assert np.array_equal(told.value, truth)
        assert (told.confidence, told.certified, manager.error) == (1.0, True, 0.0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_or_many_give_the_same_bytes(kind: str) -> None:
    whole, parts = made(kind), made(kind, parts=37)
    assert {at: cell.to_bytes() for at, cell in whole.cells.items()} == {
        at: cell.to_bytes() for at, cell in parts.cells.items()
    }


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_ruled_out_that_came(kind: str) -> None:
    manager = made(kind)
    ts, keys = stream(1)
    values = keys.to_numpy(zero_copy_only=False)
    ruled = 0
    for key in (1.0, 2.0, 17.0, 1_001.0, 1_033.0, 5_000.0):
        asked = hash_keys(pa.array([key]))
        runs, read = manager.without(asked)
        assert read == len(manager.zones())
        for begin, end in runs.tolist():
            assert not (values[begin:end] == key).any()
            ruled += end - begin
        for first, last, nowhere in manager.empty_of(asked, zones=True)[0]:
            inside = (ts >= first) & (ts <= last)
            assert not (nowhere[0] and (values[inside] == key).any())
    assert ruled > 6_000 or kind in ("reservoir", "kll")  # of these, one key is never certainly nowhere


@pytest.mark.parametrize("kind", KINDS)
def test_the_grid_of_estimates_keeps_the_laws_of_a_pyramid(kind: str) -> None:
    """A node is the sum of its children, the root of the first granularity has the open zone too."""
    manager = made(kind)
    total = 0
    for g in range(1, SPEC.depth + 1):
        index = manager.index(g)
        for node in index.nodes:
            if index.children(node) and node > 1:
                assert np.array_equal(
                    index.counters(node), sum(index.counters(child) for child in index.children(node))
                )
        asked = hash_keys(pa.array([1.0, 1_001.0]))
        for zone in index.zones():
            at_least = np.asarray(manager._asked(manager.cells[zone.start], asked).low)
            assert bool((index.in_zone(zone, asked) >= 0).all())
            assert bool((index.counts_in(zone, asked).min(axis=0) >= np.floor(at_least)).all())
        total += int(index.counters(1)[0].sum())
    assert total > 0
    side = manager.lent()
    assert side.counters.shape == SPEC.counters_shape
    manager.zeroed()
    assert not manager.lent().counters.any()
