"""Joins of two histories in steps, against brute force: every order, every tier that memory has."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from twin_hash import mixed

from nile.operators.history import kernels
from nile.operators.history.desc import DescendingJoin
from nile.operators.history.join import HistoryJoin, HistorySide, Pairs, Ranges
from nile.operators.history.outliers import OutlierJoin
from nile.operators.history.weighted import WeightedJoin
from nile.pyramid.disk.directory import StoreDirectory
from nile.pyramid.history.history import History
from nile.pyramid.history.key_pages import Keys
from nile.pyramid.history.keys import KeyIndex

Array = np.ndarray[Any, Any]
Pair = tuple[int, int]


def history(keys: list[Any], name: str = "h", kind: pa.DataType | None = None, **options: Any) -> History:
    """Tuple i at i seconds."""
    column = pa.array(keys, kind or pa.string())
    made = History(name, pa.schema([("key", column.type), ("odd", pa.bool_())]), indexed=["key"], **options)
    batch = pa.RecordBatch.from_arrays([column, pa.array(np.arange(len(keys)) % 2 == 1)], schema=made.schema)
    for begin in range(0, len(keys), 97):
        part = batch.slice(begin, 97)
        made.append(np.arange(begin, begin + len(part)) * 1_000_000_000, part)
    return made


def side(made: History, begin: int = 0, end: int | None = None, odd: bool = False) -> HistorySide:
    end = made.tuples if end is None else end
    if not odd:
        return HistorySide(made, "key", begin, end)
    return HistorySide(made, "key", begin, end, ("odd",), lambda batch: batch.column("odd"))


def brute(
    left: list[Any], right: list[Any], a: tuple[int, int], b: tuple[int, int], odd: bool = False
) -> Counter[Pair]:
    places: dict[Any, list[int]] = {}
    for j in range(*b):
        places.setdefault(right[j], []).append(j)
    return Counter(
        (i, j) for i in range(*a) if left[i] is not None and (not odd or i % 2) for j in places.get(left[i], [])
    )


def found(join: HistoryJoin) -> Counter[Pair]:
    pairs: Counter[Pair] = Counter()
    covered = 0.0
    for output in join.steps():
        if isinstance(output, Pairs):
            pairs.update(zip(output.left.tolist(), output.right.tolist(), strict=True))
        assert join.coverage >= covered
        covered = join.coverage
        estimate = join.estimate
        assert estimate.low <= estimate.value <= estimate.high
        assert sum(pairs.values()) <= estimate.high
    assert join.coverage == 1.0
    assert join.estimate.low == join.estimate.high == sum(pairs.values())
    return pairs


keys = st.lists(st.one_of(st.none(), st.sampled_from([f"k{i}" for i in range(12)])), max_size=600)


@st.composite
def bounds(draw: Any, n: int) -> tuple[int, int]:
    begin = draw(st.integers(0, n))
    return begin, draw(st.integers(begin, n))


@given(data=st.data(), left=keys, right=keys, kind=st.sampled_from(["desc", "weighted"]), odd=st.booleans())
def test_every_order_ends_with_the_join(
    data: st.DataObject, left: list[str | None], right: list[str | None], kind: str, odd: bool
) -> None:
    a, b = data.draw(bounds(len(left))), data.draw(bounds(len(right)))
    sides = (side(history(left, segment=256), *a), side(history(right, segment=256), *b))
    odd = odd and a[1] - a[0] <= b[1] - b[0]
    if odd:
        sides = (side(sides[0].history, *a, odd=True), sides[1])
    join: HistoryJoin = DescendingJoin(*sides) if kind == "desc" else WeightedJoin(*sides, seed=3)
    assert found(join) == brute(left, right, a, b, odd)


@given(data=st.data(), left=keys, right=keys, cap=st.integers(0, 60), same=st.booleans())
def test_outliers_are_the_pairs_of_keys_rare_in_all_of_both(
    data: st.DataObject, left: list[str | None], right: list[str | None], cap: int, same: bool
) -> None:
    first = history(left, segment=256)
    right, second = (left, first) if same else (right, history(right, segment=256))
    a, b = data.draw(bounds(len(left))), data.draw(bounds(len(right)))
    counts = Counter(left) + Counter(right)
    exact = brute(left, right, a, b)
    rare = Counter({pair: n for pair, n in exact.items() if counts[left[pair[0]]] <= cap})
    assert found(OutlierJoin(side(first, *a), side(second, *b), cap=cap)) == rare


@given(data=st.data(), left=keys, right=keys)
def test_ranges_stand_for_the_pairs(data: st.DataObject, left: list[str | None], right: list[str | None]) -> None:
    a, b = data.draw(bounds(len(left))), data.draw(bounds(len(right)))
    first, second = history(left, segment=256), history(right, segment=256)
    join = DescendingJoin(side(first, *a), side(second, *b), output="ranges")
    probing = right if join.swapped else left
    matches: Counter[int] = Counter()
    for output in join.steps():
        if isinstance(output, Ranges):
            assert output.key.to_pylist() == [probing[i] for i in output.ordinal.tolist()]
            for ordinal, low, high in zip(output.ordinal.tolist(), output.first.tolist(), output.last, strict=True):
                matches[ordinal] += int(high) - int(low) + 1
    exact: Counter[int] = Counter()
    for pair, n in brute(left, right, a, b).items():
        exact[pair[1] if join.swapped else pair[0]] += n
    assert matches == exact
    assert join.coverage == 1.0


def test_heavy_keys_come_first_and_their_pairs_in_bounded_steps() -> None:
    rng = np.random.default_rng(1)
    left = [f"k{k}" for k in np.minimum(rng.zipf(1.5, 1_000), 50)]
    right = [f"k{k}" for k in np.minimum(rng.zipf(1.5, 5_000), 50)]
    join = DescendingJoin(side(history(left)), side(history(right, segment=1024)))
    outputs = [output for output in join.steps() if isinstance(output, Pairs)]
    assert max(len(output.left) for output in outputs) <= 32_768
    total = sum(len(output.left) for output in outputs)
    assert total == sum(brute(left, right, (0, 1_000), (0, 5_000)).values())
    heaviest = Counter(left[i] for i in outputs[0].left.tolist()).most_common(1)[0][0]
    assert heaviest == Counter(left).most_common(1)[0][0]


def test_every_prefix_of_weighted_pairs_is_a_uniform_sample() -> None:
    left = ["a"] * 8 + ["b"] * 4
    right = ["a"] * 6 + ["b"] * 4
    first, second = history(left), history(right)
    total = 8 * 6 + 4 * 4
    seen: Counter[Pair] = Counter()
    runs = 1_500
    for seed in range(runs):
        join = WeightedJoin(side(first), side(second), seed=seed)
        outputs = [output for output in join.steps() if isinstance(output, Pairs)]
        pairs = list(zip(outputs[0].left.tolist(), outputs[0].right.tolist(), strict=True))
        assert len(set(pairs)) == total
        seen.update(pairs[:16])
    expected = runs * 16 / total
    assert len(seen) == total
    chi = sum((n - expected) ** 2 / expected for n in seen.values())
    assert chi < total + 6 * (2 * total) ** 0.5


class Spy:
    """A key index that remembers which cells were asked of it."""

    def __init__(self, index: Any) -> None:
        self._index = index
        self.asked: set[int] = set()
        self.placed: list[tuple[int, int]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._index, name)

    def look_up(self, hashes: Array) -> Any:
        self.asked.update(self._index.bucket_of(hashes).tolist())
        return self._index.look_up(hashes)


@pytest.mark.parametrize("kind", ["desc", "asc", "weighted"])
def test_a_cell_that_the_sketches_rule_out_is_never_read(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    right = [f"k{k}" for k in np.sort(rng.integers(0, 20_000, 40_000))]  # keys move on with time
    left = [f"k{k}" for k in rng.integers(0, 30_000, 12)]
    first, second = history(left), history(right, segment=8_192, largest=8_192)
    spies = [Spy(index) for index in second.indices("key")]
    monkeypatch.setattr(second, "indices", lambda column: spies)
    sides = side(first), side(second)
    join: HistoryJoin
    if kind == "asc":
        join = OutlierJoin(*sides, cap=4)
    else:
        join = DescendingJoin(*sides) if kind == "desc" else WeightedJoin(*sides)
    for _ in join.steps():
        pass
    hashes = np.unique(first.hashes("key"))
    read = 0
    for spy in spies:
        upper = spy.bounds(hashes)[1]
        possible = set(spy.bucket_of(hashes[upper > 0]).tolist())
        assert spy.asked <= possible
        read += len(spy.asked)
    assert len(spies) >= 4
    assert join.figures.cells >= read > 0
    assert join.figures.ruled_out > 0


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.int32(), [1, 2, 3, None]),
        (pa.float64(), [0.0, -0.0, float("nan"), 1.5]),
        (pa.timestamp("s"), [0, 1, 2]),
        (pa.binary(), [b"a", b"", b"\xff"]),
        (pa.dictionary(pa.int32(), pa.string()), ["x", "y", None]),
        (pa.bool_(), [True, False]),
    ],
)
@pytest.mark.parametrize("make", [DescendingJoin, WeightedJoin])
def test_keys_of_every_kind(kind: pa.DataType, values: list[Any], make: type[HistoryJoin]) -> None:
    rng = np.random.default_rng(2)
    left = [values[i] for i in rng.integers(0, len(values), 60)]
    right = [values[i] for i in rng.integers(0, len(values), 400)]

    def plain(key: Any) -> Any:
        return "nan" if key != key else key

    exact = brute([plain(k) for k in left], [plain(k) for k in right], (0, 60), (0, 400))
    join = make(side(history(left, kind=kind)), side(history(right, kind=kind, segment=256)))
    assert found(join) == exact


def test_keys_whose_hashes_collide_stay_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    # Hashes of two bits: nearly all keys share theirs with others.
    from nile.summaries.hashing import KeyHasher

    plain = KeyHasher.strings
    monkeypatch.setattr(
        KeyHasher, "strings", lambda self, data, offsets: plain(self, data, offsets) & np.uint64(3 << 62) | np.uint64(1)
    )
    rng = np.random.default_rng(4)
    left = [f"k{k}" for k in rng.integers(0, 40, 200)]
    right = [f"k{k}" for k in rng.integers(20, 60, 900)]
    counts = Counter(left) + Counter(right)
    exact = brute(left, right, (0, 200), (100, 900))
    sides = side(history(left)), side(history(right, segment=256), 100)
    assert found(DescendingJoin(*sides)) == exact
    assert found(WeightedJoin(*sides)) == exact
    rare = Counter({pair: n for pair, n in exact.items() if counts[left[pair[0]]] <= 20})
    assert found(OutlierJoin(*sides, cap=20)) == rare


def test_probing_tuples_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nile.operators.history.join.CHUNK", 100)
    rng = np.random.default_rng(8)
    left = [f"k{k}" for k in rng.integers(0, 30, 450)]
    right = [f"k{k}" for k in rng.integers(0, 40, 700)]
    exact = brute(left, right, (20, 450), (0, 700))
    sides = side(history(left), 20), side(history(right, segment=256))
    assert found(DescendingJoin(*sides)) == exact
    counts = Counter(left) + Counter(right)
    rare = Counter({pair: n for pair, n in exact.items() if counts[left[pair[0]]] <= 25})
    assert found(OutlierJoin(*sides, cap=25)) == rare


# --- kernels and their twins ------------------------------------------------------------------------------


@given(total=st.integers(1, 5_000), seed=st.integers(0, 2**64 - 1), pieces=st.integers(1, 7))
def test_a_keyed_permutation_is_one(total: int, seed: int, pieces: int) -> None:
    half = max(1, ((total - 1).bit_length() + 1) // 2)
    out: list[int] = []
    for begin in range(0, total, -(-total // pieces)):
        part = np.empty(min(-(-total // pieces), total - begin), np.int64)
        kernels.permuted(begin, total, half, np.uint64(seed), part)
        out += part.tolist()
    assert sorted(out) == list(range(total))


def test_the_kernels_are_their_python() -> None:
    rng = np.random.default_rng(3)
    rows, others = rng.integers(0, 1000, 30), rng.integers(0, 1000, 50)
    row_begin, begin = np.array([0, 4, 9, 30]), np.array([3, 0, 50, 7])
    row_end, end = np.array([4, 9, 9, 30]), np.array([9, 1, 50, 50])
    pairs = [
        (int(i), int(j))
        for a, b, c, d in zip(row_begin, row_end, begin, end, strict=True)
        for i in rows[a:b]
        for j in others[c:d]
    ]
    left, right = np.empty(len(pairs), np.int64), np.empty(len(pairs), np.int64)
    assert kernels.cross(row_begin, row_end, rows, begin, end, others, left, right) == len(pairs)
    assert list(zip(left.tolist(), right.tolist(), strict=True)) == pairs
    spread = [(r, i) for r, (c, d) in enumerate(zip(begin, end, strict=True)) for i in range(c, d)]
    which, places = np.empty(len(spread), np.int64), np.empty(len(spread), np.int64)
    assert kernels.expand(begin, end, which, places) == len(spread)
    assert list(zip(which.tolist(), places.tolist(), strict=True)) == spread
    zone, key = rng.integers(0, 9, 4), rng.integers(0, 9, 4)
    told = [
        (int(rows[i]), int(key[r]), int(zone[r]), int(begin[r]), int(end[r]) - 1)
        for r, (a, b) in enumerate(zip(row_begin, row_end, strict=True))
        for i in range(a, b)
    ]
    columns = [np.empty(len(told), np.int64) for _ in range(5)]
    kernels.records(row_begin, row_end, rows, zone, key, begin, end, *columns)
    assert list(zip(*(column.tolist() for column in columns), strict=True)) == told
    out, twin = np.empty(50, np.int64), np.empty(50, np.int64)
    kernels.permuted(7, 100, 4, np.uint64(9), out)
    twin[:] = [_permuted(7 + i, 100, 4, 9) for i in range(50)]
    assert out.tolist() == twin.tolist()


def _permuted(x: int, total: int, half: int, seed: int) -> int:
    word, low = 2**64 - 1, (1 << half) - 1

    while True:
        left, right = x >> half, x & low
        for r in range(6):
            left, right = right, left ^ (mixed(right, (seed + r * 0x94D049BB133111EB) & word) & low)
        x = (left << half) | right
        if x < total:
            return x


# --- from files -------------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(data=st.data(), left=keys, right=keys, kind=st.sampled_from(["desc", "asc", "weighted"]))
def test_files_answer_as_memory_does(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, left: Any, right: Any, kind: str
) -> None:
    a, b = data.draw(bounds(len(left))), data.draw(bounds(len(right)))
    made: dict[str, Counter[Pair]] = {}
    with StoreDirectory.open(tmp_path_factory.mktemp("store")) as directory:
        kept = {"directory": directory, "memory": 1}
        for tier, options in (("hot", {}), ("warm", kept), ("cold", kept)):
            first, second = history(left, "l", segment=256, **options), history(right, "r", segment=256, **options)
            for each in (first, second):
                each.settle()
                if tier == "cold" and each.tuples >= 256:
                    each.archive(1 << 62)
            if len(right) >= 256:
                assert second.indices("key")[0].tier == tier
            sides = side(first, *a), side(second, *b)
            join: HistoryJoin
            if kind == "asc":
                join = OutlierJoin(*sides, cap=30)
            else:
                join = DescendingJoin(*sides) if kind == "desc" else WeightedJoin(*sides, seed=3)
            made[tier] = found(join)
    assert made["warm"] == made["hot"]
    assert made["cold"] == made["hot"]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.int64()])
def test_an_index_in_a_file_compares_keys_as_one_in_memory(tmp_path: Any, kind: pa.DataType) -> None:
    rng = np.random.default_rng(6)
    values = [str(k) * (k % 5) for k in rng.integers(0, 900, 1_024)]
    keys_of = values if kind != pa.int64() else [len(value) for value in values]
    with StoreDirectory.open(tmp_path / "store") as directory:
        warm = history(keys_of, kind=kind, segment=1_024, directory=directory, memory=1)
        warm.settle()
        (index,) = warm.indices("key")
        (hot,) = history(keys_of, kind=kind, segment=1_024).indices("key")
        assert index.tier == "warm"
        entries = rng.integers(0, index.keys, 700)
        asked = hot.values(np.where(rng.random(700) < 0.5, entries, rng.integers(0, index.keys, 700)))
        which = rng.permutation(700)
        keys = Keys(asked.take(pa.array(np.argsort(which))))
        same = index.same(entries, keys, which)
        assert same.tolist() == hot.same(entries, keys, which).tolist()
        assert same.tolist() == [
            a == b for a, b in zip(hot.values(entries).to_pylist(), asked.to_pylist(), strict=True)
        ]
        assert 0 < same.sum() < 700
        assert index.values(entries).equals(hot.values(entries))
        places = rng.integers(0, index.keyed, 300)
        expected = hot.ordinals(0, hot.keyed)[places].tolist()
        assert index.ordinals_at(places).tolist() == hot.ordinals_at(places).tolist() == expected
        assert KeyIndex.ordinals_at(index, places).tolist() == expected


@pytest.mark.parametrize("kind", ["desc", "asc", "weighted"])
def test_what_a_join_reads_of_files_is_read_once_and_told(tmp_path: Any, kind: str) -> None:
    rng = np.random.default_rng(7)
    with StoreDirectory.open(tmp_path / "store") as directory:
        left, right = (
            history([f"k{k}" for k in rng.integers(0, 3_000, 2_048)], name, segment=256, directory=directory, memory=1)
            for name in "lr"
        )
        for each in (left, right):
            each.settle()
        join: HistoryJoin
        if kind == "asc":
            join = OutlierJoin(side(left), side(right), cap=4)
        else:
            join = DescendingJoin(side(left), side(right)) if kind == "desc" else WeightedJoin(side(left), side(right))
        assert found(join)
        indices = [index for each in (left, right) for index in each.indices("key")]
        assert {index.tier for index in indices} == {"warm"}
        assert join.figures.bytes == {"warm": sum(index.bytes_read for index in indices)}
