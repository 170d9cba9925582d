"""The lists of heavy keys: exact, certain of all others, and enough to find most matches without sketches."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from test_history_join import Pair, brute, found, history, side

from nile.operators.history import kernels, lookup
from nile.operators.history.desc import DescendingJoin
from nile.operators.history.join import Pairs
from nile.operators.history.keys import ProbeKeys
from nile.pyramid.disk.directory import StoreDirectory
from nile.pyramid.history import heavy, history_kernels, warm_index
from nile.pyramid.history.heavy import Heaviest, HeavyKeys
from nile.pyramid.history.key_pages import Keys
from nile.summaries.errors import StoreCorrupt
from nile.summaries.hashing import hash_keys

Array = np.ndarray[Any, Any]


def listed(hashes: list[int], counts: list[int], keys: list[str], cuts: list[int]) -> HeavyKeys | None:
    made = Heaviest(pa.string())
    for begin, end in zip([0, *cuts], [*cuts, len(hashes)], strict=True):
        starts = np.concatenate([[0], np.cumsum(counts[begin:end])]).astype(np.int64)
        made.add(np.array(hashes[begin:end], np.uint64), starts, pa.array(keys[begin:end], pa.string()))
    return made.listed()


@pytest.mark.parametrize("seed", range(30))
def test_the_list_is_that_of_all_keys_however_they_come(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    source = random.Random(seed)
    least, most = source.choice((1, 8)), source.choice((3, 20, 1 << 16))
    monkeypatch.setattr(heavy, "LEAST", least)
    monkeypatch.setattr(heavy, "MOST", most)
    distinct = sorted(source.sample(range(1 << 63, (1 << 63) + 10_000), source.randrange(0, 300)))
    hashes = [each for each in distinct for _ in range(source.choice((1, 1, 1, 3)))]
    counts = [source.choice((1, 2, 3, source.randrange(1, 1_000))) for _ in hashes]
    keys = [str(at) * source.choice((1, 1, 1, 70)) for at in range(len(hashes))]
    whole: Counter[int] = Counter()
    begins, key_of, may = {}, {}, set()
    for at, (each, n) in enumerate(zip(hashes, counts, strict=True)):
        begins.setdefault(each, sum(whole.values()))
        key_of.setdefault(each, keys[at])
        whole[each] += n
        if hashes.count(each) == 1 and len(keys[at]) <= 64:
            may.add(each)
    cuts = sorted(
        hashes.index(each) for each in source.sample(distinct, source.randrange(0, min(20, len(distinct)) + 1))
    )
    made = listed(hashes, counts, keys, cuts)
    order = sorted(may, key=lambda each: (-whole[each], each))
    chosen = sorted(order[: min(most, len(distinct) // heavy.SHARE)])
    if len(distinct) < least or not chosen:
        assert made is None
        return
    assert made is not None
    rest = [each for each in distinct if each not in chosen]
    assert made.hashes.tolist() == chosen
    assert made.counts.tolist() == [whole[each] for each in chosen]
    assert made.begins.tolist() == [begins[each] for each in chosen]
    assert made.keys.values.to_pylist() == [key_of[each] for each in chosen]
    assert made.rest == max(whole[each] for each in rest)
    asked = sorted({*source.sample(range(1 << 63, (1 << 63) + 10_000), 50), *distinct[::3]})
    places = np.array([chosen.index(each) for each in asked if each in chosen], np.int64)
    listed_keys = [key_of[each] for each in asked if each in chosen]
    which = np.arange(places.shape[0])[::-1]
    assert made.same(places, Keys(pa.array(listed_keys[::-1], pa.string())), which).all()
    longer = Keys(pa.array([key + "x" for key in listed_keys[::-1]], pa.string()))
    assert not made.same(places, longer, which).any()


@pytest.mark.parametrize("seed", range(40))
def test_the_cells_of_listed_keys_are_those_of_its_twin(seed: int) -> None:
    source = random.Random(seed)
    bits, many = source.choice((8, 20, 64)), source.choice((0, 1, 60))
    heavy_ones = sorted({source.randrange(1 << bits) for _ in range(source.choice((0, 1, 60)))})
    near = (*heavy_ones, 1 << bits - 1)
    asked = sorted({source.choice((source.choice(near), source.randrange(1 << bits))) for _ in range(many)})
    counts = [source.randrange(1, 1 << 32) for _ in heavy_ones]
    rows = [source.randrange(1, 9) for _ in asked]
    shift, room = source.choice((64, 62, bits - 4)), source.choice((5, 1 << 40))
    found = [np.full(len(asked), -7, np.int64) for _ in range(5)]
    told = np.zeros(4, np.int64)
    kernels.listed_cells(
        np.array(heavy_ones, np.uint64), np.array(counts, np.uint32), room, np.array(asked, np.uint64),
        np.array(rows, np.int64), shift, *found, told,
    )  # fmt: skip
    at = [i for i, key in enumerate(asked) if key in heavy_ones]
    others = [i for i, key in enumerate(asked) if key not in heavy_ones]
    cells = list(dict.fromkeys(asked[i] >> shift for i in at))
    low = [next(n for n, i in enumerate(at) if asked[i] >> shift == cell) for cell in cells]
    most = [
        sum(rows[i] * min(room, counts[heavy_ones.index(asked[i])]) for i in at if asked[i] >> shift == cell)
        for cell in cells
    ]
    places = [heavy_ones.index(asked[i]) for i in at]
    for got, right in zip(found, (at, places, low, most, others), strict=True):
        assert got[: len(right)].tolist() == right
    other_cells = len({asked[i] >> shift for i in others})
    assert told.tolist() == [len(at), len(cells), sum(rows[i] for i in others), other_cells]


@pytest.mark.parametrize("seed", range(40))
def test_whether_a_list_rises_is_told_as_by_its_twin(seed: int) -> None:
    source = random.Random(seed)
    n = source.choice((1, 2, 30))
    hashes = sorted({source.getrandbits(64) for _ in range(n)})
    n = len(hashes)
    begins, counts, after = [], [], 0
    for _ in range(n):
        begins.append(after + source.choice((0, 0, 7)))
        counts.append(source.randrange(1, 9))
        after = begins[-1] + counts[-1]
    at, keyed = source.randrange(n), after
    match source.choice(("right", "hash", "begin", "count", "end")):
        case "hash" if at:
            hashes[at] = hashes[at - 1] - source.randrange(2)
        case "begin" if at:
            begins[at] = begins[at - 1] + counts[at - 1] - 1
        case "count":
            counts[at] = 0
        case "end":
            keyed -= 1
    rise = all(a < b for a, b in itertools.pairwise(hashes))
    apart = all(b + c <= d for b, c, d in zip(begins, counts, [*begins[1:], keyed], strict=True))
    told = history_kernels.heavy_rise(
        np.array(hashes, np.uint64), np.array(begins, np.uint32), np.array(counts, np.uint32), keyed
    )
    assert told == (rise and apart and min(counts) > 0)


def kept(directory: StoreDirectory, keys: list[Any], name: str, segment: int = 256) -> Any:
    made = history(keys, name, segment=segment, directory=directory, memory=1)
    made.settle()
    return made


@pytest.mark.parametrize("seed", range(12))
def test_a_join_that_asks_them_first_finds_the_same(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heavy, "LEAST", seed % 2 * 30 + 1)
    monkeypatch.setattr(lookup, "_SMALL", (0, 200, 1 << 16)[seed % 3])
    rng = np.random.default_rng(seed)
    left = [f"k{k}" for k in np.minimum(rng.zipf(1.3, int(rng.integers(1, 700))), 500)]
    right: list[Any] = [f"k{k}" for k in np.minimum(rng.zipf(1.3, int(rng.integers(256, 2_000))), 500)]
    for place in rng.integers(0, len(right), int(rng.integers(0, 60))).tolist():
        right[place] = None
    b = tuple(sorted(rng.integers(0, len(right) + 1, 2).tolist())) if seed % 3 else (0, len(right))
    with StoreDirectory.open(tmp_path) as directory:
        second = kept(directory, right, "r")
        if seed % 2 == 0:
            assert any(index.lists_heavy for index in second.indices("key"))
        join = DescendingJoin(side(history(left)), side(second, *b))
        assert found(join) == brute(left, right, (0, len(left)), (b[0], b[1]))


def test_most_pairs_are_found_before_a_digest_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heavy, "LEAST", 64)
    rng = np.random.default_rng(4)
    left = [f"k{k}" for k in rng.zipf(1.6, 30)]
    right = [f"k{k}" for k in rng.zipf(1.6, 60_000)]
    exact = brute(left, right, (0, len(left)), (0, len(right)))
    with StoreDirectory.open(tmp_path) as directory:
        second = kept(directory, right, "r", segment=8_192)
        index = max(second.indices("key"), key=lambda each: each.tuples)
        assert index.lists_heavy
        join = DescendingJoin(side(history(left)), side(second))
        pairs: Counter[Pair] = Counter()
        for output in join.steps():
            if isinstance(output, Pairs):
                pairs.update(zip(output.left.tolist(), output.right.tolist(), strict=True))
                assert join.coverage <= sum(pairs.values()) / sum(exact.values())
            if join.coverage >= 0.9:
                break
        assert sum(pairs.values()) >= 0.9 * sum(exact.values())
        assert not pairs - exact
        assert not index.summary_at_hand
        assert join.figures.listed > 20
        assert join.figures.cells == 1  # of the rows in memory, which have no list


@pytest.mark.parametrize("small", [0, 1 << 16])
def test_small_lists_are_read_by_who_asks_and_tell_what_readers_tell(
    small: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[str] = []
    readers = lookup._readers()
    monkeypatch.setattr(
        readers, "submit", lambda of, *given: begun.append(of.__name__) or type(readers).submit(readers, of, *given)
    )
    monkeypatch.setattr(lookup, "_SMALL", small)
    keys = [f"k{k}" for k in range(256)]
    with StoreDirectory.open(tmp_path) as directory:
        made, figures = (
            kept(directory, [key for key in keys for _ in range(16)], "r", segment=2_048),
            lookup.HistoryFigures(),
        )
        segments = [
            each for each in lookup.segments_of(made, "key", 0, 4_096, figures, heavy_first=True) if each.heavy_first
        ]
        assert len(segments) > 1
        lookup.read_ahead(segments)
        probe = ProbeKeys(pa.array(keys), np.arange(256), made.hasher)
        told = list(lookup.listed_of(segments, probe))
        assert begun == ([] if small else ["_heavy_of"] * len(segments))
        for segment, one in zip(segments, told, strict=True):
            assert probe.hashes[one.at].tolist() == segment.index.heavy.hashes[one.place].tolist()
            assert sorted([*one.at, *one.others]) == list(range(256))
        assert figures.bytes[segments[0].index.tier] > 0


def test_listed_text_is_compared_where_it_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm_index, "unpacked_text", lambda *_, **__: pytest.fail("a list was unpacked"))
    keys = [f"k{k}" for k in range(256)]
    with StoreDirectory.open(tmp_path) as directory:
        index = kept(directory, [key for key in keys for _ in range(16)], "r", segment=4_096).indices("key")[0]
        of_hash = dict(zip(hash_keys(pa.array(keys)).tolist(), keys, strict=True))
        mine = [of_hash[each] for each in index.heavy.hashes.tolist()]
        asked = Keys(pa.array([each for key in mine for each in (key, key + "x", key[:-1])]))
        places, which = np.repeat(np.arange(len(mine)), 3), np.arange(3 * len(mine))
        assert len(mine) > 9
        assert index.heavy.same(places, asked, which).tolist() == [True, False, False] * len(mine)


@pytest.mark.parametrize(
    ("hashes", "begins", "counts", "right"),
    [
        ([1, 2], [0, 5], [5, 5], True),
        ([1, 2], [0, 4], [5, 5], False),
        ([2, 1], [0, 5], [5, 5], False),
        ([1, 1], [0, 5], [5, 5], False),
        ([1, 2], [0, 1_020], [5, 5], False),
        ([1, 2], [0, 5], [0, 10], False),
    ],
)
def test_a_list_that_contradicts_its_file_is_refused(
    hashes: list[int],
    begins: list[int],
    counts: list[int],
    right: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(heavy, "LEAST", 64)
    numbers = np.array(hashes, np.uint64), np.array(begins, np.uint32), np.array(counts, np.uint32)
    wrong = HeavyKeys(*numbers, 6, lambda: pa.array(["a", "b"]))
    monkeypatch.setattr(Heaviest, "listed", lambda _: wrong)
    with StoreDirectory.open(tmp_path) as directory:
        index = kept(directory, [f"k{k % 100}" for k in range(1_024)], "r", segment=1_024).indices("key")[0]
        if right:
            assert index.heavy.counts.tolist() == counts
            return
        with pytest.raises(StoreCorrupt, match="heavy keys: needed"):
            _ = index.heavy
