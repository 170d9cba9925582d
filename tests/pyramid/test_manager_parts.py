"""A summary that is put together from parts is, byte for byte, the one that saw every tuple in turn."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from nile.pyramid.grid.manager import SummaryManager
from nile.pyramid.grid.manager_parts import (
    count_by_leaf,
    counters_for,
    leaves_of,
    put_counters,
    slices_of,
    take_keys,
    take_slices,
)
from nile.pyramid.grid.manager_state import manager_bytes, read_manager
from nile.pyramid.grid.spec import SummarySpec
from nile.summaries.envelope import unpack
from nile.summaries.hashing import KeyTable

Array = np.ndarray[Any, Any]


def stream(source: random.Random, tuples: int) -> tuple[Array, pa.Array]:
    """Times with gaps and ties, and keys that change their distribution now and then, some of them null."""
    draw = np.random.default_rng(source.randrange(1 << 30))
    gaps = draw.integers(0, 3, tuples) * draw.choice([0, 1, 1, 50], tuples)
    values: list[int | None] = []
    while len(values) < tuples:
        low, span = source.randrange(0, 400), source.choice((1, 5, 300))
        more = draw.integers(low, low + span, source.randrange(1, 3_000))
        values += [None if v % 13 == 0 and source.random() < 0.5 else v for v in more.tolist()]
    if source.random() < 0.1:
        values = [None] * tuples
    return np.cumsum(gaps).astype(np.int64) - 1_000, pa.array(values[:tuples], pa.int64())


def whole(spec: SummarySpec, ts: Array, keys: pa.Array) -> SummaryManager:
    manager = SummaryManager(spec)
    manager.ingest(ts, keys)
    manager.store.release(manager.store.tuples)
    return manager


def brought_on(manager: SummaryManager, source: random.Random, ts: Array, keys: pa.Array) -> None:
    """Tuples from the manager's own place on, cut at random slice ends, counted in random heaps."""
    spec, begin, end = manager.spec, manager.store.tuples, ts.shape[0]
    ends = [at for at in range(256, end, 256) if at > begin]
    cuts = [begin, *sorted(source.sample(ends, min(len(ends), source.randrange(6)))), end]
    for low, high in itertools.pairwise(cuts):
        table = KeyTable()
        codes, hashes = (lambda found: (found.codes, found.hashes))(table.encode(keys.slice(low, high - low)))
        take_slices(manager, slices_of(spec, low, ts[low:high], codes, hashes))
        counts = np.bincount(codes[codes >= 0], minlength=table.known)
        take_keys(manager, table.values(), counts, where="test")
    leaves = leaves_of(manager, begin)
    total = counters_for(spec, leaves)
    ordinals = np.random.default_rng(source.randrange(1 << 30)).permutation(np.arange(begin, end))
    for heap in np.array_split(ordinals, source.randrange(1, 5)):
        table = KeyTable()
        codes = table.encode(keys.take(pa.array(heap))).codes
        part = counters_for(spec, leaves)
        count_by_leaf(spec, leaves, part, heap, codes, table.hashes())
        total += part
    put_counters(manager, leaves, total)


def spec_of(source: random.Random) -> SummarySpec:
    return SummarySpec(
        granularity=source.choice((300, 5_000, 10**6)),
        rate=source.choice((2, 3, 4)),
        depth=source.choice((1, 2, 3)),
        structure=source.choice(("T1", "T2", "T3", "T4", "T4", "T4")),
        buckets=source.choice((1, 16)),
        columns=source.choice((8, 32)),
        rows=source.choice((1, 3)),
        confidence=source.choice(("two-window", "variance")),
        forgetting=source.random() < 0.3,
        max_zones=source.choice((2, 4, 16)),
        seed=source.randrange(5),
    )


@pytest.mark.parametrize("seed", [*range(30), *(pytest.param(at, marks=pytest.mark.long) for at in range(30, 400))])
def test_parts_in_any_order_give_the_bytes_of_the_whole(seed: int) -> None:
    source = random.Random(seed)
    spec = spec_of(source)
    ts, keys = stream(source, source.randrange(1, 20_000))
    manager = SummaryManager(spec)
    brought_on(manager, source, ts, keys)
    assert manager_bytes(manager) == manager_bytes(whole(spec, ts, keys))


@pytest.mark.parametrize("seed", [*range(20), *(pytest.param(at, marks=pytest.mark.long) for at in range(20, 300))])
def test_a_manager_goes_on_from_its_stored_form_and_may_be_pushed_to_afterwards(seed: int) -> None:
    source = random.Random(1_000 + seed)
    spec = spec_of(source)
    ts, keys = stream(source, source.randrange(3, 20_000))
    cuts = sorted(source.sample(range(1, len(ts)), 2))
    manager = whole(spec, ts[: cuts[0]], keys[: cuts[0]])
    for end in (cuts[1], len(ts)):
        manager = read_manager(unpack(manager_bytes(manager)))
        if end < len(ts) or source.random() < 0.5:
            brought_on(manager, source, ts[:end], keys[:end])
        else:
            begin = manager.store.tuples
            manager.ingest(ts[begin:end], keys[begin:end])
            manager.store.release(end)
        assert manager_bytes(manager) == manager_bytes(whole(spec, ts[:end], keys[:end]))
