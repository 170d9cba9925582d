"""Whole streams joined by lists against every pair looked at, and against the chains that follow what comes later."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from nile.exact.join import dense, listed, shared, stream
from nile.exact.join.chain import encode, encode_all, window_codes
from nile.exact.join.dense import dense_codes
from nile.exact.join.listed import Lists, Words
from nile.exact.join.window_graph import WindowGraph
from nile.exact.join.wjoin import WindowJoinPlan

Array = np.ndarray[Any, Any]


def _streams(rng: np.random.Generator) -> tuple[tuple[Array, Array], tuple[Array, Array], int]:
    n, m = (int(rng.integers(0, 60)) for _ in range(2))
    ts = tuple(np.sort(rng.integers(0, 40, k)) for k in (n, m))
    codes = tuple(rng.integers(-1, int(rng.integers(1, 12)), k) for k in (n, m))
    return (ts[0], ts[1]), (codes[0], codes[1]), int(rng.integers(1, 25))


def _brute(ts: tuple[Array, Array], codes: tuple[Array, Array], window: int) -> list[tuple[int, int]]:
    """In the order in which pairs complete: by the later arrival (left first at a tie), its newest partner first."""
    order = sorted([(t, 0, i) for i, t in enumerate(ts[0])] + [(t, 1, j) for j, t in enumerate(ts[1])])
    seen: tuple[list[int], list[int]] = ([], [])
    found = []
    for t, side, k in order:
        found += [
            (k, other) if side == 0 else (other, k)
            for other in reversed(seen[1 - side])
            if codes[side][k] == codes[1 - side][other] >= 0 and (window < 0 or t - ts[1 - side][other] <= window)
        ]
        seen[side].append(k)
    return found


@pytest.mark.parametrize("seed", range(60))
def test_the_pairs_and_their_order_are_those_of_brute_force(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    monkeypatch.setattr(listed, "_ROOM", 64 * int(rng.integers(1, 9)))  # blocks of 1 to 8 pairs end anywhere
    ts, codes, window = _streams(rng)
    for reach in (window, -1):
        blocks = list(Lists(ts, codes, reach).pairs())
        assert all(block.shape[0] > 0 for block in blocks)
        assert [(int(a), int(b)) for block in blocks for a, b in block] == _brute(ts, codes, reach)


@pytest.mark.parametrize("seed", range(12))
def test_pairs_are_those_of_brute_force_where_more_leave_at_once_than_a_batch_holds(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(seed)
    monkeypatch.setattr(listed, "_ROOM", 1 << int(rng.integers(4, 16)))
    ends = (0, np.iinfo(np.int64).min, np.iinfo(np.int64).max - 50_000)
    first = ends[seed % 3]
    ts, codes = [], []
    for _ in range(2):  # bursts far apart, of one stream or both, and between them a few
        n = int(rng.integers(300, 1_200))
        steps = rng.choice([0, 1, 2_000], n, p=[0.5, 0.495, 0.005])
        ts.append(first + np.minimum(np.cumsum(steps), 49_999))
        codes.append(rng.integers(-1, 200, n))
    for window in (0, 3, 900, 3_000, np.iinfo(np.int64).max, -1):
        found = [
            (int(a), int(b)) for block in Lists((ts[0], ts[1]), (codes[0], codes[1]), window).pairs() for a, b in block
        ]
        whole = (ts[0].astype(object), ts[1].astype(object))  # differences of times that no int64 holds
        assert found == _brute(whole, (codes[0], codes[1]), window)


@pytest.mark.parametrize("way", ["lists", "chains"])
def test_pairs_that_are_only_looked_at_lie_in_the_place_of_those_before_and_those_kept_stay(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "suits", lambda ts, window: way == "lists")
    rng = np.random.default_rng(3)
    ts = tuple(np.sort(rng.integers(0, 20_000, 10_000)) for _ in range(2))
    codes = tuple(rng.integers(0, 100, 10_000) for _ in range(2))
    plan = WindowJoinPlan(WindowGraph.uniform(2, 3_000), threads=1)

    def told(block: Array) -> tuple[int, int, int]:
        return int(block.ctypes.data), int(block.shape[0]), int((block * np.array([3, 1])).sum())

    seen = list(plan.start().made(ts, codes, told, kept=False))
    kept = list(plan.start().run(ts, codes))
    assert [each[1:] for each in seen] == [told(block)[1:] for block in kept]
    assert len(seen) > 2
    assert len({place for place, *_ in seen}) == 1
    assert len({block.ctypes.data for block in kept}) == len(kept)


@pytest.mark.parametrize("seed", range(30))
def test_a_join_goes_on_after_lists_as_it_does_after_chains(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    ts, codes, window = _streams(rng)
    after = max((int(each[-1]) for each in ts if each.shape[0]), default=0)
    told = []
    for by_lists in (True, False):
        with monkeypatch.context() as patch:
            patch.setattr("nile.exact.join.stream.suits", lambda *_, answer=by_lists: answer)
            join = WindowJoinPlan(WindowGraph.uniform(2, window)).start()
            first = [tuple(row) for block in join.run(ts, codes) for row in block.tolist()]
        held = join.capture()
        other = np.random.default_rng(seed + 1)
        for _ in range(3):
            later = after + np.sort(other.integers(0, 20, 9))
            after_codes = other.integers(-1, 6, 9)
            join.push(other.integers(0, 2, 9), later, after_codes)
            after = int(later[-1])
        rest = [tuple(row) for block in join.outputs() for row in block.tolist()]
        kept = {k: v for k, v in held.items() if k in ("now", "completed")}
        told.append((first, rest, kept, [part["ordinals"].tolist() for part in held["streams"]], join.held))
        after = max((int(each[-1]) for each in ts if each.shape[0]), default=0)
    assert told[0] == told[1]


KEYS = {
    "small": pa.array([3, None, 7, 3, 0]),
    "negative": pa.array([-3, None, 7, -3, 2**40]),
    "extreme": pa.array([-(2**63), None, 2**63 - 1, 0, -1]),
    "floats": pa.array([0.5, -0.0, 0.0, None, float("nan")]),
    "negative floats": pa.array([-0.5, -0.0, 0.0, None, float("nan")]),
    "narrow": pa.array([1, 2, 1, None, 120], pa.int8()),
    "unsigned": pa.array([1, 2**64 - 1, 1, None, 120], pa.uint64()),
    "times": pa.array([5, 5, None, 9, -4], pa.timestamp("ms")),
    "dates": pa.array([5, 5, None, 9, -4], pa.date32()),
    "text": pa.array(["a", "b", None, "a", ""]),
    "dictionary": pa.array(["a", "b", None, "a", ""]).dictionary_encode(),
    "truths": pa.array([True, None, False, True, True]),
    "none": pa.nulls(5),
}


@pytest.mark.parametrize("kind", KEYS)
def test_codes_without_an_encoding_are_equal_where_keys_are(kind: str) -> None:
    column = KEYS[kind]
    sides = (column, pa.chunked_array([column[3:], column[:3]]))
    wanted = np.concatenate(encode_all(sides)[0])
    for told in (window_codes(sides), encode(*sides)[:2]):
        codes = np.concatenate(told)
        assert ((codes < 0) == (wanted < 0)).all()
        alike = (codes[:, None] == codes[None, :]) & (codes >= 0)[:, None]
        assert (alike == ((wanted[:, None] == wanted[None, :]) & (wanted >= 0)[:, None])).all()
    left, right, above = encode(*sides)
    assert above > max(left.max(), right.max())


@pytest.mark.parametrize("seed", range(20))
def test_numbers_far_apart_have_the_codes_of_an_encoding(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dense, "_LEAST", 2)  # the table grows on the way, within a column and between two
    rng = np.random.default_rng(seed)
    values = np.concatenate([[-1, 0, np.iinfo(np.int64).max], rng.integers(0, 1 << 62, 1 + 20 * seed)])
    columns = [values[rng.integers(0, values.shape[0], int(rng.integers(0, 400)))] for _ in range(2)]
    codes, distinct = dense_codes(columns)
    expected, known = encode_all([pa.array(column, mask=column < 0) for column in columns])
    assert distinct == max(1, int(max((code.max(initial=-1) for code in expected), default=-1)) + 1) <= max(1, known)
    for code, wanted in zip(codes, expected, strict=True):
        assert code.tolist() == wanted.tolist()
    own, fewer = dense_codes(columns, shared=True)
    shortest = min(columns, key=len)
    assert fewer == max(1, np.unique(shortest[shortest >= 0]).shape[0])
    for column, code in zip(columns, own, strict=True):
        assert ((code >= 0) == ((column >= 0) & np.isin(column, shortest))).all()
    assert (np.equal.outer(*own) == np.equal.outer(*columns))[np.ix_(own[0] >= 0, own[1] >= 0)].all()


@pytest.mark.parametrize("seed", range(20))
def test_codes_far_apart_join_as_near_ones_do(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    ts, codes, window = _streams(rng)
    far = (np.where(codes[0] < 0, -1, codes[0] << 40), np.where(codes[1] < 0, -1, codes[1] << 40))
    near = [block.tolist() for block in Lists(ts, codes, window).pairs()]
    monkeypatch.setattr(listed, "_DENSE", -(1 << 20))
    assert [block.tolist() for block in Lists(ts, far, window).pairs()] == near


@pytest.mark.parametrize("seed", range(40))
def test_keys_of_one_stream_alone_change_no_pair(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    ts, codes, window = _streams(rng)
    codes = (codes[0], np.where(codes[1] % 3 == 0, codes[1], codes[1] + 20))  # two of three keys are not shared
    far = 0 if seed % 2 else 40
    codes = (np.where(codes[0] < 0, -1, codes[0] << far), np.where(codes[1] < 0, -1, codes[1] << far))
    near = [block.tolist() for block in Lists(ts, codes, window).pairs()]
    monkeypatch.setattr(shared, "_SAMPLED", 2)
    monkeypatch.setattr(shared, "_NEAR", 0)
    lists = Lists(ts, codes, window)
    assert [block.tolist() for block in lists.pairs()] == near
    assert [pair for block in near for pair in block] == [list(pair) for pair in _brute(ts, codes, window)]
    assert [block.tolist() for block in Lists(ts, codes, window, whole=True).pairs()] == near


@pytest.mark.parametrize("above", [70_000, 66_000, 1 << 17])
def test_codes_that_are_left_are_closed_up_in_their_order(above: int) -> None:
    rng = np.random.default_rng(above)
    left, right = rng.integers(-1, above, 40_000), rng.integers(-1, above, 30_000)
    left[-1], right[0] = above - 1, above - 1
    places = shared.in_all((left, right), above)
    assert places is not None
    codes, most = shared.kept_of((left, right), places, above)
    common, numbers = np.unique(left[places[0]], return_inverse=True)
    assert most == common.shape[0] < above
    assert (codes[0] == numbers).all()
    assert (common[codes[1]] == right[places[1]]).all()
    few, same = shared.kept_of((left % 60_000, right % 60_000), places, 60_000)
    assert same == 60_000
    assert (few[0] == left[places[0]] % 60_000).all()


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()], ids=str)
@pytest.mark.parametrize("seed", range(10))
def test_texts_of_one_stream_alone_change_no_pair(seed: int, kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    ts, codes, window = _streams(rng)
    stems = ["", "a", "tea", "a name that is longer than what is looked at of it, "]
    tails = ["", "x", "yy", " and ends as others do, but for what lies before"]
    names = [stem + tail for stem in stems for tail in tails] + [None]
    columns = []
    for side, each in enumerate(codes):
        drawn = [names[-1 if code < 0 else (code + 6 * side) % 16] for code in each.tolist()]
        columns.append(pa.array([None, "cut off", *drawn], pa.string()).cast(kind).slice(2))
    truth = encode_all(columns)[0]
    monkeypatch.setattr(shared, "_SAMPLED", 2)
    found = window_codes(columns, shared=True)
    expected = [block.tolist() for block in Lists(ts, truth, window).pairs()]
    assert [block.tolist() for block in Lists(ts, found, window).pairs()] == expected
    for own, whole, others in zip(found, truth, truth[::-1], strict=True):
        assert (own[np.isin(whole, others[others >= 0])] >= 0).all()


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("many", [0.0, 1e9])
def test_pairs_are_told_in_words_as_their_ordinals_say(
    monkeypatch: pytest.MonkeyPatch, threads: int, many: float
) -> None:
    monkeypatch.setattr(listed, "_MANY", many)
    for keys, far in ((40, 1), (40, 10**12), (9_000, 1)):  # of many keys most are in one stream alone
        rng = np.random.default_rng(keys)
        ts = tuple(np.sort(rng.integers(0, 50_000, n)) for n in (3_000, 2_500))
        codes = tuple(np.where(rng.random(len(t)) < 0.1, -1, far * rng.integers(0, keys, len(t))) for t in ts)
        of = tuple(rng.integers(-(2**63), 2**63 - 1, len(t)) for t in ts)
        for window in (0, 300, -1):
            ordinals = np.concatenate([np.empty((0, 2), np.int64), *Lists(ts, codes, window, threads=1).pairs()])
            told = Lists(ts, codes, window, threads=threads, words=Words(of, lambda block: ("words", block)))
            blocks = list(told.made(lambda block: ("ordinals", block)))
            assert {how for how, _ in blocks} <= {"words" if many == 0.0 else "ordinals"}
            found = np.concatenate([np.empty((0, 2), np.int64), *(block for _, block in blocks)])
            if many == 0.0:
                expected = np.stack([each[at] for each, at in zip(of, ordinals.T, strict=True)]).T
            else:
                expected = ordinals
            assert found.tolist() == expected.tolist()


@pytest.mark.parametrize("spread", [6, 12, 24, 40])
def test_keys_far_apart_of_which_many_are_in_one_stream_alone_join_their_own_kind(spread: int) -> None:
    rng = np.random.default_rng(spread)
    n = 20_000
    keys = spread * n
    common = rng.integers(0, keys, n // 4)
    codes = tuple(np.where(rng.random(n) < 0.5, rng.choice(common, n), rng.integers(0, keys, n)) for _ in range(2))
    ts = (np.arange(n), np.arange(n))
    found = np.concatenate([np.empty((0, 2), np.int64), *Lists(ts, codes, -1, threads=1).pairs()])
    left, right = (np.bincount(each, minlength=keys) for each in codes)
    assert (codes[0][found[:, 0]] == codes[1][found[:, 1]]).all()
    assert found.shape[0] == left @ right
