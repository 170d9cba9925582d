"""What a look counts, and which tuples come in: kernels against a few lines of Python each."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from nile.experiments.benchmarks.truth.family import made
from nile.operators.strategies.looking import Look
from nile.operators.strategies.strategy_kernels import (
    BINS,
    admit,
    admit_values,
    kinds_of,
    near_by_key,
    slot_counts,
    take_kinds,
    times_met,
    value_counts,
    weigh_outliers,
)
from nile.summaries.hash_kernels import mix

Array = np.ndarray[Any, Any]


def test_keys_are_counted_in_both_streams() -> None:
    rng = np.random.default_rng(1)
    for sizes in ((0, 0), (0, 7), (9, 0), (500, 300)):
        keys = [np.sort(rng.integers(0, 80, size)) for size in sizes]
        left, right = (
            each.astype(np.uint64) << np.uint64(16) | np.arange(each.shape[0], dtype=np.uint64) for each in keys
        )
        numbers, times = np.empty(sum(sizes), np.uint64), np.empty((2, sum(sizes)), np.int64)
        met = times_met(left, right, numbers, times)
        one, other = (Counter(each.tolist()) for each in keys)
        found = [int(number) >> 16 for number in numbers[:met]]
        assert found == sorted({*one, *other})
        assert times[:, :met].T.tolist() == [[one[key], other[key]] for key in found]
        for number, key in zip(numbers[:met], found, strict=True):  # the place of one of its tuples
            assert keys[0 if one[key] else 1][int(number) & 0xFFFF] == key


def _slots(words: Array, seed: int, bits: int) -> list[int]:
    return [int(mix(int(word), np.uint64(seed))) >> 64 - bits for word in words]


@pytest.mark.parametrize("block", [7, 1024])
def test_tuples_and_values_are_counted_by_slot(block: int) -> None:
    rng = np.random.default_rng(7)
    words, at = rng.integers(-(1 << 60), 1 << 60, 300), rng.integers(0, 300, 5_000).astype(np.int32)
    often = np.zeros(300, np.int32)
    value_counts(at, often)
    assert often.tolist() == np.bincount(at, minlength=300).tolist()
    for given, times, of_each in ((words, often, often), (words[at], np.zeros(0, np.int32), np.ones(5_000, np.int32))):
        counts = np.zeros(64, np.int32)
        slot_counts(given, times, 5, 58, np.empty(block, np.uint64), counts)
        assert counts.tolist() == np.bincount(_slots(given, 5, 6), of_each, 64).tolist()


def test_slots_that_are_alike_are_of_one_kind_and_taken_in_the_order_of_kinds() -> None:
    rng = np.random.default_rng(8)
    seen = rng.zipf(1.5, (2, 4_000)).clip(0, 1 << 20).astype(np.int32) - 1
    kinds, number, tuples = np.zeros(4_000, np.uint16), np.zeros(BINS**2, np.int64), np.zeros((2, BINS**2), np.int64)
    kinds_of(seen, kinds, number, tuples)
    assert number.tolist() == np.bincount(kinds, minlength=BINS**2).tolist()
    for side in (0, 1):
        assert tuples[side].tolist() == np.bincount(kinds, seen[side], BINS**2).tolist()
    few = (seen < 32).all(axis=0)
    assert (kinds[few] == seen[0, few] * BINS + seen[1, few]).all()
    for kind in np.flatnonzero(number):
        alike = seen[:, kinds == kind]
        assert (alike.max(axis=1) <= 1.25 * alike.min(axis=1) + 1).all()
    order = rng.permutation(np.flatnonzero(number))[:-3]
    rank = np.full(BINS**2, -1, np.int32)
    rank[order] = np.arange(order.shape[0])
    all_ = [s for kind in order for s in np.flatnonzero(kinds == kind)]
    ends = np.cumsum(number[order])
    cuts = [0, 1, 5, int(ends[2]), int(ends[2]) + 1, len(all_) // 2, len(all_)]
    for begin, end in pairwise(cuts):
        places = [np.searchsorted(ends, cut, side="right") for cut in (begin, end)]
        at = [np.array([k, cut - (ends[k - 1] if k else 0)]) for k, cut in zip(places, (begin, end), strict=True)]
        stratum = np.zeros(4_000, np.uint8)
        take_kinds(kinds, rank, *at, stratum)
        assert np.flatnonzero(stratum).tolist() == sorted(int(s) for s in all_[begin:end])


@pytest.mark.parametrize("thinned", [False, True])
def test_who_comes_in_of_a_dictionary_is_told_by_its_values(thinned: bool) -> None:
    rng = np.random.default_rng(9)
    n, tossing = 900, 5
    at, into, which = rng.integers(0, 40, n).astype(np.int32), rng.random(40) < 0.6, rng.integers(0, 3, 40)
    coin = np.array([1 << 31, 1 << 30 if thinned else 1 << 31, 1 << 31], np.uint64)
    place, time, came = np.empty(n + 1, np.int64), np.empty(n + 1, np.int64), np.empty(n + 1, np.uint8)
    ts = np.arange(n) * 10
    m = admit_values(at, ts, into, which.astype(np.uint8), coin, tossing, place, time, came)
    expected = [
        (i, i * 10, int(which[at[i]]))
        for i in range(n)
        if into[at[i]] and int(mix(i, np.uint64(tossing))) & 0x7FFFFFFF < coin[which[at[i]]]
    ]
    assert list(zip(*(each[:m].tolist() for each in (place, time, came)), strict=True)) == expected
    assert 0 < m < n


def test_pairs_of_one_key_are_counted_and_those_within_the_window() -> None:
    rng = np.random.default_rng(3)
    for sizes in ((0, 0), (0, 5), (300, 200)):
        keys = [rng.integers(0, 12, size).astype(np.uint64) for size in sizes]
        times = [np.sort(rng.integers(0, 90, size)) for size in sizes]
        told = [np.sort(key << np.uint64(16) | np.arange(key.shape[0], dtype=np.uint64)) for key in keys]
        for window in (0, 7, 1_000):
            alike = keys[0][:, None] == keys[1][None, :]
            near = alike & (abs(times[0][:, None] - times[1][None, :]) <= window)
            assert near_by_key(*told, *times, window) == (int(alike.sum()), int(near.sum()))


def test_times_at_the_ends_of_what_there_is_are_within_a_window() -> None:
    ends = np.iinfo(np.int64)
    times = np.array([ends.min, ends.max])
    told = np.array([0, 1], np.uint64)
    assert near_by_key(told, told, times, times, 1 << 60) == (4, 2)


@pytest.mark.parametrize(
    "name", ["sessions", "drifting", "late heavy key", "float keys", "bursts", "zipf 1", "short window"]
)
@pytest.mark.parametrize("tuples", [2_000, 40_000])
def test_pairs_are_told_where_keys_go_with_time(name: str, tuples: int) -> None:
    joined = made(name, tuples, 5)
    exact = joined.pairs
    look = Look(joined, 0)
    assert abs(look.pairs / exact - 1.0) < 0.15 + 4.0 / math.sqrt(exact / max(look.every) ** 2)
    half = look.within(None if joined.window is None else joined.window // 2)
    assert half.pairs < look.pairs
    assert half.alike <= look.alike


def test_a_look_at_keys_that_do_not_go_with_time_is_that_at_all_tuples() -> None:
    for name in ("zipf 0.5", "many keys", "tied times", "near-empty", "many keys, whole stream"):
        look = Look(made(name, 3_000, 1), 0)
        assert look.alike == look.closeness


@pytest.mark.parametrize("nulls", [False, True])
@pytest.mark.parametrize("thinned", [False, True])
@pytest.mark.parametrize("block", [64, 1024])
def test_who_comes_in_is_told_by_hashes_of_keys_and_places(nulls: bool, thinned: bool, block: int) -> None:
    rng = np.random.default_rng(2)
    n, seed, tossing, shift = 700, 77, 5, 60
    words, ts = rng.integers(0, 90, n), np.arange(n) * 10
    valid = rng.random(n) < 0.8 if nulls else np.zeros(0, np.bool_)
    stratum = rng.integers(0, 3, 1 << (64 - shift)).astype(np.uint8)
    level = np.array([0, 1 << 31, 1 << 30], np.uint64)
    coin = np.array([1 << 31, 1 << 30 if thinned else 1 << 31, 1 << 31], np.uint64)
    place, time, word = (np.empty(n + 1, np.int64) for _ in range(3))
    came, hashes = np.empty(n + 1, np.uint8), np.empty(block, np.uint64)
    m = admit(
        words, valid, ts, seed, shift, stratum, level, coin, tossing, hashes, place, time, word, came
    )  # fmt: skip
    expected = []
    for i in range(n):
        key, toss = int(mix(int(words[i]), np.uint64(seed))), int(mix(i, np.uint64(tossing)))
        own, low = int(stratum[key >> shift]), 0x7FFFFFFF
        if (not nulls or valid[i]) and key & low < level[own] and toss & low < coin[own]:
            expected.append((i, i * 10, int(words[i]), own))
    assert list(zip(*(each[:m].tolist() for each in (place, time, word, came)), strict=True)) == expected
    assert 0 < m < n


def _weighed(seen: Array, every: int, keys: float) -> tuple[Array, Array, Array]:
    kinds, table = np.zeros((32, 32), np.int64), np.empty((2, 32, 32))
    tuples, wanted, worths = (np.empty(seen.shape[1], kind) for kind in (np.float64, np.float64, np.float32))
    weigh_outliers(
        seen, np.array([every, every]), 1.0, 4, 0.5, keys, 100, kinds, table, tuples, wanted, worths
    )  # fmt: skip
    return tuples, wanted, worths


def test_a_slot_is_expected_to_have_what_slots_like_it_have() -> None:
    rng = np.random.default_rng(3)
    slots, every, busy = 20_000, 50, 200
    rate = np.full(slots, 60.0)
    rate[:busy] = 4_000.0
    have = rng.poisson(rate, (2, slots))
    seen = rng.binomial(have, 1.0 / every).astype(np.int32)
    tuples, wanted, worths = _weighed(seen, every, 40.0)
    true = have.sum(axis=0)
    light = rate == 60.0
    for times in range(4):  # as often as a sample sees slots that are all alike by chance
        alike = light & (seen.sum(axis=0) == times)
        assert tuples[alike].mean() == pytest.approx(true[alike].mean(), rel=0.05)
    assert tuples[~light].mean() == pytest.approx(true[~light].mean(), rel=0.05)
    assert worths[~light].max() < worths[light].min()  # a frequent key has no outliers, and costs
    usual = _few(60.0 + 60.0, 40.0)
    assert wanted[light].mean() == pytest.approx(usual, rel=0.2)


def _few(tuples: float, keys: float) -> float:
    standing = 0.5 * tuples / keys
    return (tuples / 2.0) ** 2 / keys * sum(math.exp(-standing) * standing**j / math.factorial(j) for j in range(3))


def test_slots_that_were_looked_at_whole_have_what_was_seen() -> None:
    seen = np.random.default_rng(4).integers(0, 6, (2, 5_000)).astype(np.int32)
    tuples, _, _ = _weighed(seen, 1, 1.0)
    assert tuples.tolist() == seen.sum(axis=0).tolist()
