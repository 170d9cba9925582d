"""The summary manager equals a twin that keeps zones as lists, whatever the stream, the spec and the batches."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from twin_pyramid import Twin, sketch_of

from nile.pyramid.grid import arrays as ga
from nile.pyramid.grid.manager import SummaryManager
from nile.pyramid.grid.spec import SummarySpec
from nile.summaries.errors import ConfigError, KeyTypeError, NileError, TimestampOrderError
from nile.summaries.hashing import Encoded, KeyTable

Array = np.ndarray[Any, Any]
LOWEST, HIGHEST = -(1 << 63), (1 << 63) - 1


@dataclass(frozen=True)
class Stretch:
    """A part of a stream: n tuples `gap` ns apart over `keys` keys from `shift` on, each null one time in `null`."""

    n: int
    gap: int
    keys: int
    shift: int
    null: int


stretches = st.lists(
    st.builds(
        Stretch,
        n=st.integers(1, 1200),
        gap=st.sampled_from([0, 0, 1, 3, 40, 5_000]) | st.integers(0, 100),
        keys=st.sampled_from([1, 2, 30, 500]),
        shift=st.sampled_from([0, 0, 1000]),
        null=st.sampled_from([0, 0, 5, 1]),
    ),
    min_size=1,
    max_size=7,
)
specs = st.builds(
    SummarySpec,
    granularity=st.sampled_from([1, 300, 2_000, 20_000]),
    rate=st.integers(2, 5),
    depth=st.integers(1, 4),
    structure=st.sampled_from(["T4", "T4", "T3", "T2"]),
    buckets=st.sampled_from([1, 4]),
    rows=st.sampled_from([1, 2, 3]),
    columns=st.sampled_from([1, 8]),
    confidence=st.sampled_from(["two-window", "variance"]),
    threshold=st.sampled_from([0.0, 0.02, 0.6]),
    max_length=st.sampled_from([None, 1, 700, 10_000]),
    forgetting=st.booleans(),
    max_zones=st.sampled_from([2, 4]),
    seed=st.integers(0, 3),
)


def stream(parts: list[Stretch], begin: int = 0) -> tuple[Array, pa.Array]:
    """Times (int64, held at the end of int64) and keys of the stretches, one after the other."""
    rng = np.random.default_rng(len(parts))
    now, times, keys = begin, [], []
    for part in parts:
        drawn = rng.integers(0, part.keys, part.n)
        for key in drawn.tolist():
            times.append(min(now, HIGHEST))
            keys.append(None if part.null and key % part.null == 0 else key + part.shift)
            now += part.gap
        now += 37 * part.gap
    return np.array(times, np.int64), pa.array(keys, pa.int64())


def ingested(spec: SummarySpec, ts: Array, keys: pa.Array, cuts: list[int] | None = None) -> SummaryManager:
    manager = SummaryManager(spec)
    for begin, end in pairwise([0, *sorted(cut % (len(ts) + 1) for cut in cuts or []), len(ts)]):
        manager.ingest(ts[begin:end], keys.slice(begin, end - begin))
    return manager


def twin_of(manager: SummaryManager, ts: Array, keys: pa.Array) -> Twin:
    encoded = manager.keys.encode(keys)
    twin = Twin(manager.spec, manager.store.side.detector_multipliers)
    for time, code, h in zip(ts.tolist(), encoded.codes.tolist(), encoded.hashes.tolist(), strict=True):
        twin.take(time, None if code < 0 else h)
    return twin


def assert_equal(manager: SummaryManager, twin: Twin) -> None:
    """Zones, their sketches, every index node and every count are the twin's."""
    described = [(z.granularity, z.start, z.end, z.first, z.last, z.summarised) for z in manager.zones()]
    assert described == twin.zones()
    assert (manager.changes, manager.zones_closed) == (twin.changes, twin.closed)
    assert (manager.forgotten, manager.kept_from) == (twin.forgotten, twin.kept_from)
    node = manager.store.side.node
    for g, zones in enumerate(twin.granularities, 1):
        index = manager.index(g)
        leaves = {zone.slot: held for zone, held in zip(index.zones(), zones, strict=False)}
        expected = {}
        for position in reversed(index.nodes):
            slot = index.slot(position)
            if children := index.children(position):
                held = [entry for child in children for entry in expected[child]]
            else:
                held = leaves[slot].held if slot in leaves else []
            if position == 1 and g == 1:
                held = held + twin.open.held
            expected[position] = held
            assert np.array_equal(index.counters(position), sketch_of(manager, (h for _, _, h in held)))
            assert tuple(node[slot]) == row_of(held)


def row_of(held: list[tuple[int, int, int]]) -> tuple[int, ...]:
    if not held:
        return ga.NO_TUPLE
    row = [0] * 5
    row[ga.COUNT] = len(held)
    row[ga.START], row[ga.END] = min(o for o, _, _ in held), max(o for o, _, _ in held) + 1
    row[ga.FIRST], row[ga.LAST] = min(ts for _, ts, _ in held), max(ts for _, ts, _ in held)
    return tuple(row)


@settings(max_examples=60)
@given(spec=specs, parts=stretches, cuts=st.lists(st.integers(0, 10_000), max_size=4))
def test_the_manager_equals_its_twin(spec: SummarySpec, parts: list[Stretch], cuts: list[int]) -> None:
    ts, keys = stream(parts)
    manager = ingested(spec, ts, keys, cuts)
    assert_equal(manager, twin_of(manager, ts, keys))


@settings(max_examples=15)
@given(
    spec=specs,
    parts=stretches,
    begin=st.sampled_from([LOWEST, LOWEST + 1, -50_000, HIGHEST - 20_000, HIGHEST]),
    leap=st.sampled_from([0, 1 << 62, 1 << 63, (1 << 64) - 1]),
)
def test_times_at_the_ends_of_int64_are_as_good_as_others(
    spec: SummarySpec, parts: list[Stretch], begin: int, leap: int
) -> None:
    ts, keys = stream(parts, begin)
    late = np.minimum(ts.astype(object) + leap, HIGHEST).astype(np.int64)
    ts, keys = np.concatenate([ts, late]), pa.concat_arrays([keys, keys])
    ts = np.maximum.accumulate(ts)
    manager = ingested(spec, ts, keys)
    assert_equal(manager, twin_of(manager, ts, keys))
    keyed = len(keys) - keys.null_count
    for since in (None, LOWEST, 0, HIGHEST):
        estimate = manager.estimate(manager.keys.hashes(), since)
        assert np.isfinite(estimate.value).all()
        assert (estimate.high >= 0).all()
        assert (estimate.high <= keyed).all()


@settings(max_examples=20)
@given(spec=specs, parts=stretches, cuts=st.lists(st.integers(0, 10_000), max_size=6))
def test_batches_leave_no_trace(spec: SummarySpec, parts: list[Stretch], cuts: list[int]) -> None:
    ts, keys = stream(parts)
    whole, cut = ingested(spec, ts, keys), ingested(spec, ts, keys, cuts)
    for name in ("counters", "node", "gran", "zone", "detector", "recent", "moments"):
        assert getattr(whole.store.side, name).tobytes() == getattr(cut.store.side, name).tobytes(), name
    assert lists_of(whole) == lists_of(cut)


def lists_of(manager: SummaryManager) -> dict[int, list[int]]:
    side = manager.store.side
    return {
        code: side.arena[place : place + held].tolist()
        for code, (place, _, held, _) in enumerate(side.lists[: manager.keys.known].tolist())
    }


@settings(max_examples=25)
@given(spec=specs, parts=stretches)
def test_every_keyed_tuple_is_in_one_zone_or_forgotten(spec: SummarySpec, parts: list[Stretch]) -> None:
    ts, keys = stream(parts)
    manager = ingested(spec, ts, keys)
    assert sum(zone.summarised for zone in manager.zones()) + manager.forgotten == len(keys) - keys.null_count
    zones = manager.zones()
    assert all(older.end <= newer.start for older, newer in pairwise(zones))
    if not spec.forgetting:
        assert manager.forgotten == manager.kept_from == 0
    elif zones:
        assert manager.kept_from <= zones[0].start


@settings(max_examples=25)
@given(spec=specs, parts=stretches, share=st.floats(0, 1))
def test_no_key_is_ever_more_frequent_than_its_upper_bound(
    spec: SummarySpec, parts: list[Stretch], share: float
) -> None:
    ts, keys = stream(parts)
    manager = ingested(spec, ts, keys)
    since = int(ts[int(share * (len(ts) - 1))])
    codes = manager.keys.encode(keys).codes
    reached = (np.arange(len(ts)) >= manager.kept_from) & (ts >= since) & (codes >= 0)
    true = np.bincount(codes[reached], minlength=manager.keys.known)
    estimate = manager.estimate(manager.keys.hashes(), since)
    assert (estimate.high >= true).all()
    assert (estimate.value >= estimate.low).all()
    assert (estimate.value <= estimate.high).all()


def test_an_estimate_over_everything_is_that_of_one_sketch_of_the_stream() -> None:
    ts, keys = stream([Stretch(3_000, 7, 40, 0, 0)])
    manager = ingested(SummarySpec(granularity=2_000, depth=3, rate=2), ts, keys)
    assert len(manager.zones()) > 4
    counters = sketch_of(manager, manager.keys.encode(keys).hashes.tolist())
    cells = manager.index(1).cells(manager.keys.hashes())
    own = np.array([counters[r, cells[:, r]] for r in range(3)])
    raw = np.median(own - [counters[r, cells[:, r] ^ 1] for r in range(3)], axis=0)
    expected = np.clip(raw, 0, own.min(axis=0))
    # The bound over parts may be tighter than that of the whole: the least of sums is no less than their sum.
    estimate = manager.estimate(manager.keys.hashes())
    assert (estimate.high <= own.min(axis=0)).all()
    assert np.array_equal(estimate.value, np.minimum(expected, estimate.high))


def test_t1_keeps_no_summary_but_bounds_and_tuple_lists() -> None:
    ts, keys = stream([Stretch(2_000, 50, 30, 0, 5)])
    manager = ingested(SummarySpec(granularity=100, structure="T1"), ts, keys)
    assert manager.zones_closed == 0
    assert [zone.summarised for zone in manager.zones()] == [len(keys) - keys.null_count]
    true = Counter(key for key in keys.to_pylist() if key is not None)
    estimate = manager.estimate(manager.keys.hashes())
    assert (estimate.high >= [true[key] for key in manager.keys.values().to_pylist()]).all()
    assert sum(len(entries) for entries in lists_of(manager).values()) == sum(true.values())
    assert manager.memory.sketches < 20_000


def test_a_zone_ends_at_the_first_slice_end_after_its_longest_time() -> None:
    ts, keys = stream([Stretch(2_000, 10, 5, 0, 0)])
    manager = ingested(SummarySpec(granularity=100_000, max_length=3_000, structure="T3"), ts, keys)
    assert [zone.start for zone in manager.zones()] == [0, 512, 1024, 1536]
    assert all(zone.length >= 3_000 for zone in manager.zones()[:-1])


def slices(n: int, spec: SummarySpec) -> SummaryManager:
    """n slices of tuples 10 ns apart; with max_length 2,550 each slice is a zone, and a zone begins each 2,560 ns."""
    ts, keys = stream([Stretch(256 * n, 10, 5, 0, 0)])
    return ingested(spec, ts, keys)


@pytest.mark.parametrize(("longest", "starts"), [(2_550, [0, 256, 512, 768]), (2_551, [0, 512])])
def test_a_zone_as_long_as_max_length_ends(longest: int, starts: list[int]) -> None:
    manager = slices(4, SummarySpec(granularity=1_000_000, max_length=longest, structure="T3"))
    assert [zone.start for zone in manager.zones()] == starts


@pytest.mark.parametrize(("t1", "moved"), [(5_120, 1), (5_121, 0)])
def test_a_zone_that_ended_t1_ago_leaves_the_first_granularity(t1: int, moved: int) -> None:
    manager = slices(3, SummarySpec(granularity=t1, max_length=2_550, structure="T3"))
    assert [len(manager.index(g).zones()) for g in (1, 2)] == [3 - moved, moved]


@pytest.mark.parametrize(("t1", "zones"), [(2_560, 2), (2_561, 1)])
def test_a_current_zone_is_left_after_its_share_of_the_granularity(t1: int, zones: int) -> None:
    manager = slices(4, SummarySpec(granularity=t1, rate=2, max_length=2_550, structure="T3"))
    assert len(manager.index(2).zones()) == zones


def test_collapse_gathers_zones_in_ever_longer_ones() -> None:
    ts, keys = stream([Stretch(20_000, 10, 5, 0, 0)])
    manager = ingested(SummarySpec(granularity=8_000, max_length=2_000, rate=2, depth=3, structure="T3"), ts, keys)
    by_granularity = {g: manager.index(g).zones() for g in (1, 2, 3)}
    assert [len(by_granularity[g]) >= 1 for g in (1, 2, 3)] == [True, True, True]
    assert by_granularity[3][0].first == 0
    assert max(z.length for z in by_granularity[1]) < max(z.length for z in by_granularity[3])
    now = manager.zones()[-1].last
    assert all(now - zone.last < 8_000 + 2 * 2_560 for zone in by_granularity[1])


def test_a_stream_that_paused_for_ages_is_forgotten_when_it_goes_on() -> None:
    spec = SummarySpec(granularity=1_000, max_length=500, rate=2, depth=3, forgetting=True)
    ts, keys = stream([Stretch(2_000, 10, 5, 0, 0)])
    late = np.arange(512, dtype=np.int64) + 10_000_000
    manager = ingested(spec, np.concatenate([ts, late]), pa.concat_arrays([keys, keys.slice(0, 512)]))
    assert manager.forgotten > 1_700
    assert all(zone.last >= 19_000 for zone in manager.zones())


def test_memory_of_sketches_stays_while_the_stream_grows() -> None:
    spec = SummarySpec(granularity=1_000, depth=3)
    ts, keys = stream([Stretch(1_000, 10, 300, 0, 0)])
    manager = SummaryManager(spec)
    before = manager.memory
    for i in range(20):
        manager.ingest(ts + i * 100_000, keys)
    after = manager.memory
    assert after.sketches == before.sketches >= spec.counters * 8
    assert after.tuples > before.tuples
    assert after.total == after.sketches + after.directory + after.tuples


def test_releasing_bounds_the_tuples_held_and_not_the_summary() -> None:
    spec = SummarySpec(granularity=1_000_000, depth=2)
    kept, released = SummaryManager(spec), SummaryManager(spec)
    sizes = []
    for i in range(60):
        ts, keys = stream([Stretch(1_000, 10, 100, 0, 7)], begin=i * 20_000)
        kept.ingest(ts, keys)
        released.ingest(ts, keys)
        released.release(int(ts[-1]) - 40_000)
        sizes.append(released.memory.tuples)
    assert max(sizes) < 300_000  # 4,000 to 5,000 tuples at about 60 bytes
    assert kept.memory.tuples > 1_200_000
    assert released.store.side.counters.tobytes() == kept.store.side.counters.tobytes()
    assert released.zones() == kept.zones()


@pytest.mark.parametrize("before", [LOWEST, -(1 << 80), 1 << 80])
def test_releasing_before_or_after_all_time_is_fine(before: int) -> None:
    ts, keys = stream([Stretch(300, 10, 3, 0, 0)])
    manager = ingested(SummarySpec(granularity=1_000), ts, keys)
    manager.release(before)
    manager.ingest(ts + 10_000, keys)
    assert sum(zone.summarised for zone in manager.zones()) == 600


def test_a_manager_that_holds_no_tuple_goes_on_before_1970() -> None:
    ts, keys = stream([Stretch(300, 10, 3, 0, 0)], begin=-1_000_000)
    manager = ingested(SummarySpec(granularity=1_000), ts, keys)
    manager.release(0)
    manager.ingest(ts + 10_000, keys)
    assert sum(zone.summarised for zone in manager.zones()) == 600


def test_an_empty_batch_changes_nothing() -> None:
    manager = SummaryManager(SummarySpec(granularity=1_000))
    manager.ingest(np.zeros(0, np.int64), pa.array([], pa.int64()))
    assert manager.zones() == []
    assert manager.estimate(np.zeros(2, np.uint64)).value.tolist() == [0.0, 0.0]  # type: ignore[union-attr]


def test_a_batch_of_null_keys_only_is_taken_and_summarised_nowhere() -> None:
    manager = SummaryManager(SummarySpec(granularity=1_000))
    manager.ingest(np.arange(1_000, dtype=np.int64), pa.nulls(1_000, pa.string()))
    assert manager.zones() == []
    assert not manager.store.side.counters.any()
    assert not manager.store.side.recent.any()
    assert manager.store.tuples == 1_000


def test_two_managers_of_one_key_table_share_codes() -> None:
    keys = KeyTable()
    spec = SummarySpec(granularity=1_000)
    left, right = SummaryManager(spec, keys), SummaryManager(spec, keys)
    left.ingest(np.arange(3, dtype=np.int64), pa.array(["a", "b", "c"]))
    right.ingest(np.arange(3, dtype=np.int64), pa.array(["c", "d", "a"]))
    assert lists_of(left) == {0: [0], 1: [1], 2: [2], 3: []}
    assert lists_of(right) == {0: [2], 1: [], 2: [0], 3: [1]}


TS = np.arange(4, dtype=np.int64)
KEYS = pa.array([1, 2, 3, 4])
BAD_BATCHES = {
    "times of another type": (TS.astype(np.float64), KEYS, ConfigError, r"int64 \[4\] nanoseconds.*got float64 \[4\]"),
    "fewer times": (TS[:3], KEYS, ConfigError, r"int64 \[4\].*one for each key; got int64 \[3\]"),
    "a list": ([0, 1, 2, 3], KEYS, ConfigError, r"needed times as int64 \[4\].*got list"),
    "times that fall": (TS[::-1].copy(), KEYS, TimestampOrderError, r"tuple 11 has ts 2 ns, before 3 already read"),
    "times before the last batch": (TS - 1, KEYS, TimestampOrderError, r"tuple 10 has ts -1 ns, before 0 already read"),
    "keys of a type that is none": (TS, pa.array([[1]] * 4), KeyTypeError, r"key: a join key must be"),
    "keys of another family": (TS, pa.array(["a"] * 4), KeyTypeError, r"keys here are integer; got string"),
}


@pytest.mark.parametrize("what", BAD_BATCHES)
def test_a_bad_batch_is_refused_in_one_sentence_and_leaves_nothing(what: str) -> None:
    ts, keys, error, message = BAD_BATCHES[what]
    manager = SummaryManager(SummarySpec(granularity=1_000))
    manager.ingest(np.zeros(10, np.int64), pa.array(range(10)))
    before = manager.store.side.zone.tobytes(), manager.keys.known, manager.store.tuples
    with pytest.raises(error, match=message) as caught:
        manager.ingest(ts, keys)  # type: ignore[arg-type]
    assert isinstance(caught.value, NileError)
    assert "\n" not in str(caught.value)
    assert (manager.store.side.zone.tobytes(), manager.keys.known, manager.store.tuples) == before


@pytest.mark.parametrize("codes", [[0, 10], [-2, 0]])
def test_codes_of_another_table_are_refused(codes: list[int]) -> None:
    manager = SummaryManager(SummarySpec(granularity=1_000))
    manager.ingest(np.zeros(10, np.int64), pa.array(range(10)))
    foreign = Encoded(np.array(codes, np.int32), np.ones(2, np.uint64))
    with pytest.raises(KeyTypeError, match=r"needed key codes -1 to 9.*manager.keys.encode"):
        manager.ingest_encoded(np.zeros(2, np.int64), foreign)


@pytest.mark.parametrize("keys", [[1, 2], np.zeros(2, np.int64), np.zeros((1, 2), np.uint64)])
def test_estimates_are_asked_by_hash(keys: Any) -> None:
    with pytest.raises(KeyTypeError, match=r"estimate: keys are hashes, a numpy array of uint64 \[n\]"):
        SummaryManager(SummarySpec(granularity=1_000)).estimate(keys)
