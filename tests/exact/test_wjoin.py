"""The W-join family against every combination looked at: all algorithms, window forms and strategies."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from nile.exact.join import parts as chain_stream_parts
from nile.exact.join.chain import encode_all
from nile.exact.join.window_graph import FORMS, WindowGraph
from nile.exact.join.wjoin import ALGORITHMS, STRATEGIES, Condition, WindowJoin, WindowJoinPlan, window_join
from nile.summaries.errors import ConfigError, ExpressionError, KeyTypeError, TimestampOrderError

Array = np.ndarray[Any, Any]
NULL = np.iinfo(np.int64).min
SIZES = {2: 30, 3: 14, 4: 8, 5: 6, 6: 4}
FORWARD_OR_OPPONENT = ("few-nested", "few-hash", "ripple", "xjoin")
HOUR = 3_600_000_000_000


@dataclass(frozen=True)
class Work:
    """Streams and the windows they are joined in."""

    graph: WindowGraph
    ts: list[Array]
    codes: list[Array]


def graph_of(form: str, streams: int, span: int, rng: np.random.Generator) -> WindowGraph:
    """A random graph of one form; windows of 1 to `span`."""

    def window() -> int:
        return int(rng.integers(1, span + 1))

    if form in ("binary", "uniform clique"):
        return WindowGraph.uniform(streams, window())
    if form == "clique":
        return WindowGraph.of(streams, {pair: window() for pair in itertools.combinations(range(streams), 2)})
    at = [int(k) for k in rng.permutation(streams)]
    if form == "path":
        return WindowGraph.of(streams, {step: window() for step in itertools.pairwise(at)})
    if form == "directed path":
        return WindowGraph.directed(streams, [(*step, window()) for step in itertools.pairwise(at)])
    edges = {(at[k], at[int(rng.integers(0, k))]): window() for k in range(1, streams)}
    extra = tuple(int(k) for k in rng.choice(streams, 2, replace=False))
    if extra not in edges and extra[::-1] not in edges:
        edges[extra] = window()
    return WindowGraph.of(streams, edges)


def work_of(form: str, rng: np.random.Generator) -> Work:
    """Random streams with ties, bursts, gaps, null codes, and now and then an empty stream."""
    streams = 2 if form == "binary" else int(rng.integers(3 if "clique" in form or form == "graph" else 2, 7))
    span = int(rng.choice([4, 20, 100]))
    keys = int(rng.choice([1, 2, 5]))
    ts, codes = [], []
    for _ in range(streams):
        n = int(rng.integers(0, SIZES[streams] + 1)) if rng.random() < 0.9 else 0
        gaps = rng.integers(0, max(2, 2 * span // (n + 1)), n) * (rng.random(n) < 0.6)
        gaps += (rng.random(n) < 0.05) * span * 3
        ts.append(np.cumsum(gaps).astype(np.int64) + int(rng.integers(-span, span)))
        codes.append(rng.integers(-1 if rng.random() < 0.5 else 0, keys, n))
    return Work(graph_of(form, streams, span, rng), ts, codes)


def equal(values: list[int]) -> bool:
    return values[0] >= 0 and all(value == values[0] for value in values)


def keeps(graph: WindowGraph, ts: list[int]) -> bool:
    """Whether timestamps keep the windows, word for word."""
    if not graph.is_directed:
        return all(abs(ts[i] - ts[j]) <= w for (i, j), w in graph.constraints.items())
    as_written = all(0 <= ts[j] - ts[i] <= w for (i, j), w in graph.constraints.items())
    reversed_ = all(0 <= ts[i] - ts[j] <= w for (i, j), w in graph.constraints.items())
    return as_written or reversed_


def arrival(work: Work, members: tuple[int, ...]) -> tuple[int, int, int]:
    """The last member in total order: the tuple that completes the combination."""
    return max((int(work.ts[k][i]), k, i) for k, i in enumerate(members))


def brute_force(work: Work, joins: Callable[[list[int]], bool] = equal) -> list[tuple[int, ...]]:
    """Every combination that joins, sorted by the tuple that completes it and then by its members."""
    found = []
    for members in itertools.product(*(range(each.shape[0]) for each in work.ts)):
        ts = [int(work.ts[k][i]) for k, i in enumerate(members)]
        values = [int(work.codes[k][i]) for k, i in enumerate(members)]
        if joins(values) and keeps(work.graph, ts):
            found.append(members)
    return sorted(found, key=lambda members: (arrival(work, members), members))


def runs(algorithms: tuple[str, ...] = ALGORITHMS) -> Iterator[tuple[str, str | None]]:
    """Every algorithm and strategy that can run together."""
    for algorithm, strategy in itertools.product(algorithms, (None, *STRATEGIES)):
        if not (algorithm in FORWARD_OR_OPPONENT and strategy in ("mbe", "exact")):
            yield algorithm, strategy


def members_of(blocks: Iterator[Array]) -> list[tuple[int, ...]]:
    return [tuple(row) for block in blocks for row in block.tolist()]


def pushed(join: WindowJoin, work: Work, rng: np.random.Generator) -> list[tuple[int, ...]]:
    """The same input pushed in random batches in total order, some with all tuples of one stream, time told between."""
    which = np.repeat(np.arange(len(work.ts)), [each.shape[0] for each in work.ts])
    ts, codes = np.concatenate(work.ts), np.concatenate(work.codes)
    order = np.argsort(ts, kind="stable")
    found: list[tuple[int, ...]] = []
    while order.shape[0]:
        some = order[: int(rng.integers(1, 9))]
        if rng.random() < 0.5:
            some = some[: np.flatnonzero(np.append(which[some] != which[some[0]], True))[0]]
            join.push(int(which[some[0]]), ts[some], codes[some])
        else:
            join.push(which[some], ts[some], codes[some])
        order = order[some.shape[0] :]
        if rng.random() < 0.3:
            join.advance(int(ts[some[-1]]))
        if rng.random() < 0.3:
            found += members_of(join.outputs())
    return found + members_of(join.outputs())


def check(work: Work, rng: np.random.Generator) -> int:
    """All algorithms and strategies on one input; returns how many ran."""
    truth = brute_force(work)
    ran = 0
    for algorithm, strategy in runs():
        plan = (work.graph, "equal", algorithm, strategy)
        said = f"{plan}"
        found = members_of(window_join(*plan, cleanup=5).run(work.ts, work.codes))
        assert sorted(found, key=lambda each: (arrival(work, each), each)) == truth, said
        assert [arrival(work, each) for each in found] == [arrival(work, each) for each in truth], said
        assert sorted(pushed(window_join(*plan, cleanup=5), work, rng)) == sorted(truth), said
        ran += 1
    return ran


@pytest.mark.parametrize("form", FORMS)
def test_every_algorithm_and_strategy_finds_what_looking_at_all_combinations_finds(form: str) -> None:
    rng = np.random.default_rng(FORMS.index(form))
    assert sum(check(work_of(form, rng), rng) for _ in range(8)) >= 100  # 6 forms: more than 1,000 cases


@pytest.mark.long
@pytest.mark.parametrize("seed", range(20))
def test_every_algorithm_and_strategy_finds_it_on_ten_thousand_inputs(seed: int) -> None:
    rng = np.random.default_rng(1_000 + seed)
    assert sum(check(work_of(str(rng.choice(FORMS)), rng), rng) for _ in range(500)) >= 10_000


@pytest.mark.parametrize("algorithm", ["bew-nested", "few-nested", "ripple"])
def test_values_within_a_band_join_and_null_values_do_not(algorithm: str) -> None:
    rng = np.random.default_rng(3)
    for form, _ in itertools.product(FORMS, range(6)):
        work = work_of(form, rng)
        work = Work(work.graph, work.ts, [np.where(each < 0, NULL, 3 * each) for each in work.codes])
        truth = brute_force(work, lambda values: min(values) > NULL and max(values) - min(values) <= 3)
        for _, strategy in runs((algorithm,)):
            join = window_join(work.graph, Condition("band", 3), algorithm, strategy, cleanup=5)
            assert sorted(members_of(join.run(work.ts, work.codes))) == sorted(truth)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_predicate_decides_over_the_combinations_of_a_window(algorithm: str) -> None:
    rng = np.random.default_rng(4)
    on = "any" if algorithm in ("bew-nested", "few-nested", "ripple") else "equal"
    for form, _ in itertools.product(FORMS, range(4)):
        work = work_of(form, rng)

        def odd(ordinals: Array) -> Array:
            return ordinals.sum(axis=1) % 2 == 1

        joins: Callable[[list[int]], bool] = equal if on == "equal" else lambda values: True
        truth = [each for each in brute_force(work, joins) if sum(each) % 2 == 1]
        join = window_join(work.graph, on, algorithm, None, odd)
        found = members_of(join.run(work.ts, None if on == "any" else work.codes))
        assert sorted(found) == sorted(truth)
        assert join.completed == len(truth)


# --- what is kept ------------------------------------------------------------------------------------------


def may_still_join(work: Work, stream: int, at: int, now: int) -> bool:
    return bool(work.codes[stream][at] >= 0 and now - int(work.ts[stream][at]) <= work.graph.lookback(stream))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_after_time_is_told_just_the_tuples_are_kept_that_one_to_come_may_join(algorithm: str) -> None:
    rng = np.random.default_rng(5)
    for form, _ in itertools.product(FORMS, range(5)):
        work = work_of(form, rng)
        work = Work(work.graph, work.ts, [np.abs(each) for each in work.codes])
        strategy = "lca" if algorithm in FORWARD_OR_OPPONENT else None
        join = window_join(work.graph, "equal", algorithm, strategy)
        assert sum(1 for _ in join.run(work.ts, work.codes)) >= 0
        now = max((int(each[-1]) for each in work.ts if each.shape[0]), default=0) + int(rng.integers(1, 50))
        join.advance(now)
        needed = sum(may_still_join(work, k, i, now) for k, each in enumerate(work.ts) for i in range(each.shape[0]))
        if algorithm == "bew-hash":  # a bucket may wait for its visit
            assert join.held >= needed
        else:
            assert join.held == needed


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_stream_silent_forever_neither_blocks_nor_grows_memory(algorithm: str) -> None:
    graph = WindowGraph.uniform(3, 100)
    join = window_join(graph, "equal", algorithm, cleanup=500)
    held, memory = [], []
    for k in range(60):
        ts = np.arange(1_000 * k, 1_000 * (k + 1))
        join.push(np.arange(1_000) % 2, ts, ts)  # keys that never come again: buckets that are never probed
        held.append(join.held)
        memory.append(join.memory)
    assert max(held) <= 1_100
    assert max(memory[30:]) <= max(memory[:30]) < 600_000
    assert list(join.outputs()) == []
    join.advance(10**6)
    join.advance(2 * 10**6)
    assert join.held == 0


def test_memory_follows_a_burst_up_and_down_again() -> None:
    for algorithm in ("chain", "bew-hash"):
        join = window_join(WindowGraph.uniform(2, 1_000), "equal", algorithm)
        empty = join.memory
        join.push(0, np.sort(np.arange(50_000) % 1_000), np.arange(50_000))
        full = join.memory
        for start in range(10_000, 30_000, 1_000):
            join.push(0, np.arange(start, start + 10), np.arange(10))
        assert join.memory < full / 100
        assert join.memory < 16 * empty
        assert join.costs["moved"] >= 50_000


def test_forward_evaluation_looks_at_nothing_while_a_stream_has_no_tuple_in_the_window() -> None:
    """Mode 1: no starting tuples; backward evaluation goes through the other buffers all the same."""
    graph = WindowGraph.uniform(3, 50)
    ts = np.arange(2_000)
    which = ts % 2
    looked = {}
    for algorithm in ("bew-nested", "few-nested"):
        join = window_join(graph, "any", algorithm)
        join.push(which, ts)
        looked[algorithm] = join.costs["comparisons"]
    assert looked["few-nested"] == 0
    assert looked["bew-nested"] > 10_000


def test_the_opponents_look_at_tuples_that_left_the_window_until_they_clean_up() -> None:
    rng = np.random.default_rng(6)
    ts = [np.arange(5_000) for _ in range(2)]
    codes = [rng.integers(0, 5, 5_000) for _ in range(2)]
    looked = {}
    for algorithm in ("bew-nested", "ripple", "bew-hash", "xjoin"):
        join = window_join(WindowGraph.uniform(2, 50), "equal", algorithm, cleanup=1_000)
        assert sum(block.shape[0] for block in join.run(ts, codes)) > 0
        looked[algorithm] = join.costs["comparisons"]
    assert looked["ripple"] > 3 * looked["bew-nested"]
    assert looked["xjoin"] > 3 * looked["bew-hash"]


def test_local_windows_look_at_less_than_the_widest_and_given_ones_at_less_still() -> None:
    rng = np.random.default_rng(8)
    graph = WindowGraph.of(4, {(0, 1): 10, (1, 2): 10, (2, 3): 100, (0, 2): 15, (0, 3): 100, (1, 3): 100})
    ts = [np.sort(rng.integers(0, 4_000, 600)) for _ in range(4)]
    codes = [rng.integers(0, 8, 600) for _ in range(4)]
    looked = {}
    for strategy in ("gca", "lca", "mbe"):
        join = window_join(graph, "equal", "bew-nested", strategy)
        assert sum(block.shape[0] for block in join.run(ts, codes)) > 0
        looked[strategy] = join.costs["comparisons"]
    assert looked["gca"] >= looked["lca"] > looked["mbe"]


# --- hand-over, blocks, growth -----------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_outputs_beyond_one_block_are_all_handed_over(algorithm: str) -> None:
    """700 tuples at one instant, all of one key: more pairs than a block holds, buffers that grow under way."""
    ts = [np.zeros(700, np.int64), np.zeros(700, np.int64)]
    codes = [np.zeros(700, np.int64), np.zeros(700, np.int64)]
    blocks = list(window_join(WindowGraph.uniform(2, 1), "equal", algorithm).run(ts, codes))
    pairs = np.concatenate(blocks)
    assert len(blocks) > 1
    assert np.unique(pairs[:, 0] * 700 + pairs[:, 1]).shape[0] == pairs.shape[0] == 700 * 700
    assert all(block[:, k].flags.c_contiguous for block in blocks for k in range(2))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_times_at_the_ends_of_int64_join_without_overflow(algorithm: str) -> None:
    low, high = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    ts = [np.array([low, low + 3, high]), np.array([low + 1, high - 1])]
    codes = [np.zeros(3, np.int64), np.zeros(2, np.int64)]
    join = window_join(WindowGraph.uniform(2, 2), "equal", algorithm)
    assert sorted(members_of(join.run(ts, codes))) == [(0, 0), (1, 0), (2, 1)]


def test_counting_keeps_nothing_but_the_number() -> None:
    rng = np.random.default_rng(9)
    for form, algorithm in itertools.product(FORMS, ALGORITHMS):
        work = work_of(form, rng)
        join = window_join(work.graph, "equal", algorithm, output="count")
        assert members_of(join.run(work.ts, work.codes)) == []
        assert join.completed == len(brute_force(work))
        assert join.seen.tolist() == [each.shape[0] for each in work.ts]


def test_parts_joined_at_once_give_the_same_blocks_in_the_same_order(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(10)
    for _ in range(60):
        span = int(rng.choice([30, 3_000]))
        ts = [np.sort(rng.integers(0, span, rng.integers(0, 400))) for _ in range(2)]
        codes = [rng.integers(-1, 4, each.shape[0]) for each in ts]
        graph = WindowGraph.uniform(2, int(rng.integers(1, 40)))
        before = np.sort(rng.integers(-30, 1, 20))
        alone, apart, counted = window_join(graph), window_join(graph), window_join(graph, output="count")
        for join in (alone, apart, counted):
            join.push(0, before, np.arange(20) % 3)
        expected = members_of(alone.run(ts, codes))
        with monkeypatch.context() as patch:
            patch.setattr(chain_stream_parts, "SIZE", 50)
            patch.setattr(chain_stream_parts, "cores", lambda: 3)
            assert members_of(apart.run(ts, codes)) == expected
            assert members_of(counted.run(ts, codes)) == []
        after = np.arange(span, span + 20)
        for join in (alone, apart, counted):
            join.push(1, after, np.arange(20) % 3)
        assert members_of(apart.outputs()) == members_of(alone.outputs())
        assert counted.completed == alone.completed == apart.completed
        assert alone.seen.tolist() == apart.seen.tolist() == counted.seen.tolist()
        assert alone.held == apart.held == counted.held


def test_parts_wait_when_nobody_takes_their_outputs_and_end_when_nobody_will(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chain_stream_parts, "SIZE", 2_000)
    monkeypatch.setattr(chain_stream_parts, "_AHEAD", 1)
    monkeypatch.setattr(chain_stream_parts, "cores", lambda: 3)
    ts = [np.arange(3_000), np.arange(3_000)]
    codes = [np.zeros(3_000, np.int64), np.zeros(3_000, np.int64)]
    blocks = list(window_join(WindowGraph.uniform(2, 200)).run(ts, codes))
    assert sum(block.shape[0] for block in blocks) == 3_000 * 401 - 200 * 201
    abandoned = window_join(WindowGraph.uniform(2, 200)).run(ts, codes)
    assert next(abandoned).shape[0] > 0
    abandoned.close()  # type: ignore[attr-defined]


def test_a_part_is_not_cut_off_where_its_window_is_too_large_a_piece_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chain_stream_parts, "SIZE", 100)
    ts = (np.arange(500), np.arange(500))
    assert len(chain_stream_parts.parts_of(ts, 10, None)) == 10
    assert len(chain_stream_parts.parts_of(ts, 20, None)) == 1
    assert len(chain_stream_parts.parts_of(ts, 10, 100)) == 8  # two cuts lie within the window of what came before


def test_counts_go_on_when_codes_outgrow_the_table_and_when_they_must_be_hashed() -> None:
    rng = np.random.default_rng(11)
    for largest in (5, 3_000, 10**6, 10**15):
        counted = window_join(WindowGraph.uniform(2, 400), output="count")
        paired = window_join(WindowGraph.uniform(2, 400))
        for k in range(20):
            ts = np.sort(rng.integers(500 * k, 500 * (k + 1), 300))
            top = 5 if k < 5 else largest
            codes = rng.integers(-1, 40, 300) * max(1, top // 40)
            stream = rng.integers(0, 2, 300)
            counted.push(stream, ts, codes)
            paired.push(stream, ts, codes)
            assert counted.completed == paired.completed
        assert counted.held == paired.held
        assert paired.completed > 0


def test_a_hashed_count_forgets_keys_that_left() -> None:
    ts = np.arange(200_000)
    counted = window_join(WindowGraph.uniform(2, 500), output="count")
    for begin in range(0, 200_000, 10_000):
        some = slice(begin, begin + 10_000)
        counted.push(ts[some] % 2, ts[some], 10**9 + ts[some] // 2)  # every key comes twice, one instant apart
    assert counted.completed == 100_000
    assert counted.most_memory < 200_000


def test_empty_batches_and_empty_streams_are_fine() -> None:
    none = np.array([], np.int64)
    for algorithm in ALGORITHMS:
        join = window_join(WindowGraph.uniform(2, 5), "equal", algorithm)
        join.push(0, none, none)
        assert members_of(join.run([none, none], [none, none])) == []
        assert members_of(join.outputs()) == []


def test_explain_names_form_algorithm_and_strategy() -> None:
    plan = WindowJoinPlan(WindowGraph.of(3, {(0, 1): 5, (1, 2): 7}, ("a", "b", "c")), algorithm="few-hash")
    assert plan.explain() == (
        "window join of 3 streams, path: ('a', 'b') 5 ns, ('b', 'c') 7 ns; on equal; algorithm few-hash, strategy lca"
    )


# --- real data ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ["chain", "bew-hash", "few-hash", "xjoin"])
@pytest.mark.parametrize(
    ("stores", "hours", "size"),
    [((0, 1), 1 / 6, 654), ((0, 1), 1, 2_834), ((0, 1), 6, 11_309), ((0, 1, 2), 1, 345), ((0, 1, 2), 6, 4_331)],
)
def test_joins_of_the_retail_data_have_their_known_sizes(
    retail: Path, algorithm: str, stores: tuple[int, ...], hours: float, size: int
) -> None:
    table = pq.read_table(retail, columns=["seq", "ts", "vstore", "item_id"]).sort_by("seq")
    parts = [table.filter(pc.equal(table["vstore"], store)) for store in stores]
    ts = [pc.cast(part["ts"], "timestamp[ns]").cast("int64").to_numpy() for part in parts]
    codes, _ = encode_all([part["item_id"] for part in parts])
    join = window_join(WindowGraph.uniform(len(stores), int(hours * HOUR)), "equal", algorithm)
    assert sum(block.shape[0] for block in join.run(ts, codes)) == size


# --- mistakes ----------------------------------------------------------------------------------------------

PAIR = WindowGraph.uniform(2, 5, ("a", "b"))
ONE = np.array([1])


def late() -> None:
    join = window_join(PAIR)
    join.push(0, np.array([10]), ONE)
    join.push(1, np.array([9]), ONE)


MISTAKES: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "unknown algorithm": (lambda: window_join(PAIR, algorithm="few-hsh"), ConfigError, "did you mean 'few-hash'"),
    "unknown strategy": (lambda: window_join(PAIR, strategy="gcaa"), ConfigError, "did you mean 'gca'"),
    "unknown condition": (lambda: window_join(PAIR, "bnad"), ConfigError, "did you mean 'band'"),
    "unknown output": (lambda: window_join(PAIR, output="counts"), ConfigError, "did you mean 'count'"),
    "negative band": (lambda: window_join(PAIR, Condition("band", -1)), ConfigError, "width of 0 or more; got -1"),
    "hashing a band": (
        lambda: window_join(PAIR, Condition("band", 1), "bew-hash"), ConfigError, "needed equality.*'bew-nested'",
    ),
    "forward evaluation along given windows": (
        lambda: window_join(PAIR, algorithm="few-hash", strategy="mbe"), ConfigError, "needed strategy gca or lca",
    ),
    "no clean-up": (lambda: window_join(PAIR, algorithm="ripple", cleanup=0), ConfigError, "above 0; got 0"),
    "names that do not fit": (lambda: window_join(PAIR, names=("x",)), ConfigError, "needed 2 different names"),
    "unknown stream": (lambda: window_join(PAIR).push(2, ONE, ONE), ConfigError, "needed streams 0 to 1; got 2"),
    "streams that do not fit": (
        lambda: window_join(PAIR).push(np.array([0, 1]), ONE, ONE), ConfigError, "or 1 of them as integers",
    ),
    "codes that do not fit": (
        lambda: window_join(PAIR).push(0, np.array([1, 2]), ONE), ConfigError, "as many codes as times; got 1 and 2",
    ),
    "no codes": (lambda: window_join(PAIR).push(0, ONE), ConfigError, "'a': needed codes"),
    "codes of text": (
        lambda: window_join(PAIR).push(0, ONE, np.array(["x"])), KeyTypeError, "'a': needed codes.*encode_all",
    ),
    "times in seconds": (
        lambda: window_join(PAIR).push(0, np.array([1.5]), ONE), ConfigError, "'a': needed ts as int64",
    ),
    "times that go back": (
        lambda: window_join(PAIR).push(1, np.array([2, 1]), np.array([1, 1])), TimestampOrderError,
        "'b': needed times that do not decrease; got 1 ns after 2 at place 1",
    ),
    "a batch in the past": (late, TimestampOrderError, "'b': needed tuples at 10 ns or later.*got 9"),
    "a stream too few": (lambda: window_join(PAIR).run([ONE], [ONE]), ConfigError, "of 2 streams; got 1 and 1"),
    "a predicate that says nothing": (
        lambda: list(window_join(PAIR, predicate=lambda ordinals: ordinals).run([ONE, ONE], [ONE, ONE])),
        ExpressionError, "needed 1 booleans",
    ),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_told_in_one_sentence(mistake: str) -> None:
    make, kind, message = MISTAKES[mistake]
    with pytest.raises(kind, match=message) as told:
        make()
    assert "\n" not in str(told.value)


def test_a_batch_that_is_refused_is_not_applied() -> None:
    join = window_join(PAIR)
    join.push(0, np.array([10]), ONE)
    with pytest.raises(TimestampOrderError):
        join.push(1, np.array([11, 9]), np.array([1, 1]))
    join.push(1, np.array([11]), ONE)
    assert members_of(join.outputs()) == [(0, 0)]
