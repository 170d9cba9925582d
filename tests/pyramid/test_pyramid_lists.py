"""Tuple lists equal a dict of lists, however tuples come in, are released, and make room for others."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nile.pyramid.grid import arrays as ga
from nile.pyramid.grid.arrays import Side
from nile.pyramid.grid.list_kernels import (
    append,
    counts_since,
    end_rank,
    expand_ranges,
    is_full,
    make_room,
    ordinal_at,
    rank_from,
    rank_since,
)
from nile.pyramid.grid.spec import SummarySpec
from nile.pyramid.grid.store import PIECE, TupleStore

Array = np.ndarray[Any, Any]
LOWEST, HIGHEST = -(1 << 63), (1 << 63) - 1


@numba.njit(error_model="numpy")  # type: ignore[untyped-decorator]
def append_one_by_one(s: Side, begin: int, end: int) -> int:
    for ordinal in range(begin, end):
        code = s.code[ordinal - s.meta[ga.BASE]]
        if code >= 0:
            if is_full(s, code) and not make_room(s, code):
                return ordinal
            append(s, code, ordinal)
    return end


@numba.njit(error_model="numpy")  # type: ignore[untyped-decorator]
def ranks(s: Side, code: int, ordinals: Array, times: Array, out: Array) -> int:
    for i in range(ordinals.shape[0]):
        out[0, i] = rank_from(s, code, ordinals[i])
    for i in range(times.shape[0]):
        out[1, i] = rank_since(s, code, times[i])
    return end_rank(s, code)


@numba.njit(error_model="numpy")  # type: ignore[untyped-decorator]
def entries(s: Side, code: int, low: int, high: int, out: Array) -> None:
    for rank in range(low, high):
        out[rank - low] = ordinal_at(s, code, rank)


@dataclass
class Model:
    """Every ordinal ever appended, by key; the first that can still be reached."""

    keys: dict[int, list[int]] = field(default_factory=dict)
    times: list[int] = field(default_factory=list)
    keep: int = 0

    def take(self, code: int, ts: int) -> None:
        if code >= 0:
            self.keys.setdefault(code, []).append(len(self.times))
        self.times.append(ts)


@dataclass(frozen=True)
class Batch:
    """n tuples over `keys` keys (code -1 is null) at gaps of `gap`; how they come in; what is released then."""

    n: int
    keys: int
    gap: int
    by_batch: bool
    release: int


batches = st.lists(
    st.builds(
        Batch,
        n=st.integers(0, 3_000),
        keys=st.sampled_from([1, 3, 40, 900]),
        gap=st.integers(0, 3),
        by_batch=st.booleans(),
        release=st.sampled_from([0, 0, 100, 2_000, 10_000]),
    ),
    max_size=8,
)


def store_of() -> TupleStore:
    return TupleStore(SummarySpec(granularity=1, structure="T1"))


def take(store: TupleStore, ts: Array, codes: Array, keys: int, *, by_batch: bool = True) -> None:
    begin = store.extend(ts, codes, np.zeros(len(ts), np.uint64), keys)
    if by_batch:
        for first in range(begin, store.tuples, PIECE):
            store.append(first, min(first + PIECE, store.tuples))
        return
    while (begin := append_one_by_one(store.side, begin, store.tuples)) < store.tuples:
        store.grow_arena(store.code_of(begin))


def run(parts: list[Batch]) -> tuple[TupleStore, Model]:
    store, model = store_of(), Model()
    rng = np.random.default_rng(5)
    now = 0
    for part in parts:
        codes = rng.integers(-1, part.keys, part.n).astype(np.int32)
        ts = now + part.gap * np.arange(part.n, dtype=np.int64)
        now = int(ts[-1]) if part.n else now
        take(store, ts, codes, part.keys, by_batch=part.by_batch)
        for code, time in zip(codes.tolist(), ts.tolist(), strict=True):
            model.take(code, time)
        if part.release:
            model.keep = max(model.keep, store.tuples - part.release)
            store.release(store.tuples - part.release)
    return store, model


@settings(max_examples=40)
@given(parts=batches)
def test_lists_hold_every_entry_that_can_be_reached_at_its_rank(parts: list[Batch]) -> None:
    store, model = run(parts)
    side = store.side
    assert side.meta[ga.KEEP_FROM] == max(model.keep, 0)
    assert side.meta[ga.BASE] <= max(model.keep, 0)
    for code in range(store.keys):
        expected = model.keys.get(code, [])
        place, room, held, gone = side.lists[code].tolist()
        assert gone + held == len(expected)
        assert side.arena[place : place + held].tolist() == expected[gone:]
        assert gone <= bisect_left(expected, model.keep)
        assert held <= room
    assert side.lists[: store.keys, ga.GONE].sum() == side.meta[ga.DROPPED_TUPLES]


@settings(max_examples=25)
@example(parts=[Batch(127, 900, 0, False, 100), Batch(2_860, 900, 0, True, 0)], ordinals=[], times=[])
@given(parts=batches, ordinals=st.lists(st.integers(-2, 25_000), max_size=8), times=st.lists(st.integers(-2, 70_000)))
def test_ranks_are_places_among_all_ever_appended(parts: list[Batch], ordinals: list[int], times: list[int]) -> None:
    store, model = run(parts)
    times = [*times, LOWEST, HIGHEST]
    for code in range(min(store.keys, 60)):
        expected = model.keys.get(code, [])
        gone = int(store.side.lists[code, ga.GONE])
        out = np.zeros((2, max(len(ordinals), len(times))), np.int64)
        asked = np.array(ordinals, np.int64), np.array(times, np.int64)
        assert ranks(store.side, code, *asked, out) == len(expected)
        # What has gone counts as before anything asked for; so does what has no time any more.
        first_timed = bisect_left(expected, int(store.side.meta[ga.BASE]))
        for ordinal, found in zip(ordinals, out[0].tolist(), strict=False):
            assert found == max(gone, bisect_left(expected, ordinal))
        for time, found in zip(times, out[1].tolist(), strict=False):
            since = bisect_left([model.times[o] for o in expected], time)
            assert found == max(gone, first_timed, since)
        got = np.zeros(len(expected) - gone, np.int64)
        entries(store.side, code, gone, len(expected), got)
        assert got.tolist() == expected[gone:]


@settings(max_examples=25)
@given(parts=batches, since=st.integers(0, 60_000) | st.sampled_from([LOWEST, HIGHEST]))
def test_counts_are_of_what_can_be_reached_since_then(parts: list[Batch], since: int) -> None:
    store, model = run(parts)
    counts = np.zeros(store.keys, np.int64)
    counts_since(store.side, since, counts)
    expected = [
        sum(o >= model.keep and model.times[o] >= since for o in model.keys.get(code, []))
        for code in range(store.keys)
    ]  # fmt: skip
    assert counts.tolist() == expected


@settings(max_examples=20)
@given(parts=batches)
def test_flat_arrays_hold_every_tuple_that_can_be_reached(parts: list[Batch]) -> None:
    store, model = run(parts)
    base = int(store.side.meta[ga.BASE])
    assert store.tuples == len(model.times)
    assert store.side.ts[: store.tuples - base].tolist() == model.times[base:]
    for code, ordinals in model.keys.items():
        assert all(store.code_of(ordinal) == code for ordinal in ordinals if ordinal >= base)


@settings(max_examples=20)
@given(parts=batches)
def test_rooms_are_disjoint_and_in_the_used_part_of_the_arena(parts: list[Batch]) -> None:
    store, _ = run(parts)
    used = store.side.lists[: store.keys]
    taken = sorted((int(row[ga.PLACE]), int(row[ga.PLACE] + row[ga.ROOM])) for row in used if row[ga.ROOM])
    assert all(end <= begin for (_, end), (begin, _) in pairwise(taken))
    assert max((end for _, end in taken), default=0) <= store.side.meta[ga.TOP] <= len(store.side.arena)
    assert all(room == 0 or (room >= 4 and room & (room - 1) == 0) for room in used[:, ga.ROOM].tolist())
    assert not store._marks.any()


def test_lists_in_a_window_stay_within_a_bound_while_new_keys_come() -> None:
    store = store_of()
    sizes = []
    for i in range(80):
        codes = (np.arange(2_000) % 500 + 250 * i).astype(np.int32)  # half of the keys of each batch are new
        take(store, np.full(2_000, i, np.int64), codes, int(codes.max()) + 1)
        store.release(store.tuples - 4_000)
        sizes.append(len(store.side.arena))
    assert store.keys == 20_250
    # At most 6,000 tuples and as many keys can be reached when lists make room: 8 entries each, as many free.
    assert max(sizes) <= 16 * 6_000
    assert max(sizes[40:]) == max(sizes[20:40])


def test_a_key_that_comes_back_after_its_list_has_gone_keeps_its_ranks() -> None:
    store = store_of()
    take(store, np.zeros(3_000, np.int64), np.zeros(3_000, np.int32), 2)
    store.release(3_000)
    for _ in range(40):  # until the arena is made anew and the first key's list goes
        take(store, np.zeros(3_000, np.int64), np.ones(3_000, np.int32), 2)
        store.release(store.tuples)
    store.grow_arena(1)
    assert store.side.lists[0].tolist()[1:] == [0, 0, 3_000]
    take(store, np.zeros(1, np.int64), np.zeros(1, np.int32), 2)
    place, room, held, gone = store.side.lists[0].tolist()
    assert (room, held, gone) == (4, 1, 3_000)
    assert store.side.arena[place] == store.tuples - 1


def test_growing_the_arena_leaves_room_for_the_key_that_asked() -> None:
    store = store_of()
    take(store, np.zeros(5_000, np.int64), np.zeros(5_000, np.int32), 1)
    before = store.side.lists[0, ga.ROOM]
    store.grow_arena(0)
    assert len(store.side.arena) - store.side.meta[ga.TOP] >= 2 * before
    assert store.side.arena[: store.side.lists[0, ga.HELD]].tolist() == list(range(5_000))


@pytest.mark.parametrize("size", [1, 7, 1_000])
def test_ranges_expand_to_their_ordinals_in_pieces(size: int) -> None:
    store = store_of()
    take(store, np.zeros(90, np.int64), (np.arange(90) % 9).astype(np.int32), 9)
    codes = np.array([0, 4, 4, 8], np.int64)
    first, last = np.array([0, 2, 5, 9]), np.array([1, 5, 5, 10])
    expected = [(i, int(codes[i]) + 9 * rank) for i in range(4) for rank in range(first[i], last[i])]
    got: list[tuple[int, int]] = []
    begin = 0
    while begin < 4:
        which, ordinal = np.zeros(max(size, 3), np.int64), np.zeros(max(size, 3), np.int64)
        begin, rows = expand_ranges(store.side, codes, first, last, begin, which, ordinal)
        got += zip(which[:rows].tolist(), ordinal[:rows].tolist(), strict=True)
    assert got == expected


def test_releasing_more_than_there_is_frees_what_there_is() -> None:
    store = store_of()
    take(store, np.zeros(10, np.int64), np.zeros(10, np.int32), 1)
    store.release(1 << 70)
    store.release(3)
    assert store.side.meta[ga.KEEP_FROM] == 10
    take(store, np.zeros(2_000, np.int64), np.zeros(2_000, np.int32), 1)
    assert store.side.meta[ga.BASE] == 10
    assert store.code_of(store.tuples - 1) == 0
