"""The atlas' pipelines: the workload as asked for, delays as a hand count finds them, times by the clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nile.exact.pipeline.pipeline import Changes, Pipeline
from nile.experiments.atlas.kinds import Data
from nile.experiments.atlas.pipeline_kind import PIPELINE, PIPELINE_CLOCK, Asked, PipelineOptions, delays
from nile.experiments.atlas.pipeline_queries import QUERIES, made, query, read

S = 1_000_000_000
FEW: dict[str, Any] = {"tuples": 600, "rate": 20.0, "window": 5.0, "second": 3.0}


def asked(name: str, seed: int = 0, **options: Any) -> tuple[Asked, PipelineOptions]:
    chosen = PipelineOptions(**{"query": name, **FEW, **options})
    return PIPELINE.prepare(chosen, seed, None), chosen


def under(options: PipelineOptions, scheduling: str) -> PipelineOptions:
    return options.model_copy(update={"scheduling": scheduling})


def rows(made: Asked, side: str) -> list[tuple[int, int, float]]:
    ts, batch = made.sales.streams[side]
    return list(zip(ts.tolist(), *(column.to_pylist() for column in batch.columns), strict=True))


def brute(name: str, made: Asked) -> list[tuple[Any, ...]]:
    """The answer at the time of the last tuple, from its definition."""
    sides = "sr" if name in ("Q4", "Q5") else "s"
    now = max(rows(made, side)[-1][0] for side in sides)
    lengths = {"s": 5 * S, "r": (3 if name == "Q5" else 5) * S}
    held = {side: [row for row in rows(made, side) if row[0] + lengths[side] >= now] for side in sides}
    bar, liked = made.sales.bar, set(made.sales.favourites.tolist())
    if name == "Q1":
        return [(float(np.round(sum(price for _, _, price in held["s"] if price > bar), 2)),)]
    if name == "Q2":
        return sorted({(item,) for _, item, _ in held["s"] if item in liked})
    if name == "Q3":
        items = sorted({item for _, item, _ in held["s"] if item in liked})
        return [(item, round(sum(price for _, own, price in held["s"] if own == item), 2)) for item in items]
    pairs = [(x, p, y, q) for _, x, p in held["s"] for _, y, q in held["r"] if x == y]
    if name == "Q4":
        return sorted(pair for pair in pairs if pair[1] > bar and pair[3] > bar)
    return [(max(p for _, p, _, _ in pairs),)]


def rounded(table: pa.Table) -> list[tuple[Any, ...]]:
    def one(value: Any) -> Any:
        return round(value, 2) if isinstance(value, float) else value

    return sorted(tuple(map(one, row.values())) for row in table.to_pylist())


@pytest.mark.parametrize("name", QUERIES)
def test_the_queries_mean_what_they_say(name: str) -> None:
    for seed in range(3):
        given, _ = asked(name, seed, matches=0.9)
        pipeline = Pipeline(given.plan)
        for _ in given.run(pipeline):
            pass
        assert rounded(pipeline.snapshot()) == brute(name, given)


def test_selectivities_are_those_asked_for() -> None:
    shape = {"tuples": 20_000, "rate": 20.0, "window": 60.0, "second": 30.0}
    one = made(0, "Q1", **shape, passes=0.4, matches=0.1)  # type: ignore[arg-type]
    assert np.mean(one.streams["s"][1]["s.price"].to_numpy() > one.bar) == pytest.approx(0.4, abs=0.02)
    assert len(made(0, "Q3", **shape, passes=0.4, matches=0.1).favourites) == 100  # type: ignore[arg-type]
    for name, passes, share in (("Q4", 0.25, 0.25), ("Q5", 1.0, 1.0)):
        sales = made(0, name, **shape, passes=passes, matches=0.3)  # type: ignore[arg-type]
        pipeline = Pipeline(query(name, sales, 60.0, 30.0))
        for _ in pipeline.run({side: [sales.streams[side]] for side in "sr"}):
            pass
        arrivals = 2 * 20_000 * share
        assert pipeline.costs["pairs"] / 2 / arrivals == pytest.approx(0.3, rel=0.15)  # a pair comes and goes


def test_only_what_is_told_late_is_late_and_the_rest_is_owed_at_the_end() -> None:
    def changes(*told: tuple[int, int, int]) -> Iterator[Changes]:
        for ts, sign, value in told:
            yield Changes(np.array([ts]), np.array([sign], np.int8), pa.record_batch({"total": [value]}))

    known = ((1, 1, 28), (2, -1, 28), (2, 1, 22), (3, -1, 22), (3, 1, 13), (5, -1, 13), (5, 1, 20), (9, -1, 20))
    exact = [(sign, (value,), ts) for ts, sign, value in known]
    told = [*changes((1, 1, 28), (5, -1, 28), (5, 1, 22), (5, -1, 22), (5, 1, 13), (5, -1, 13), (5, 1, 20))]
    assert delays(exact, told, 11).tolist() == [0, 3, 3, 2, 2, 0, 0, 2]
    assert delays(exact, changes(*known), 11).tolist() == [0] * 8
    itself = [(1, 1, 28), (2, -1, 28), (2, 1, 28), (4, -1, 28)]  # a row that goes and comes at once says nothing
    assert delays([(1, (28,), 1), (-1, (28,), 3)], changes(*itself), 9).tolist() == [0, 1]
    assert delays([(1, (0.3,), 1)], changes((1, 1, 0.1 + 0.2)), 9).tolist() == [0]  # type: ignore[arg-type]
    assert delays([(1, (28,), 3)], changes((1, 1, 28)), 9).tolist() == [-2]  # too early shows


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize("ties", [False, True])
def test_what_is_due_adds_up_to_the_answer_and_negative_tuples_tell_just_that(name: str, ties: bool) -> None:
    """ties: times cut to whole seconds, so that many tuples come and go at one instant, and some items are null."""
    given, options = asked(name, 1, matches=0.9)
    if ties:
        for side, (ts, batch) in given.sales.streams.items():
            items = [None if k % 17 == 0 else item for k, item in enumerate(batch.column(0).to_pylist())]
            columns = [pa.array(items, pa.int64()), batch.column(1)]
            given.sales.streams[side] = (ts // S * S, pa.RecordBatch.from_arrays(columns, schema=batch.schema))
    left: Counter[tuple[Any, ...]] = Counter()
    for sign, row, _ in given.due:
        left[row] += sign
        assert left[row] >= 0
    assert [ts for *_, ts in given.due] == sorted(ts for *_, ts in given.due)
    if not ties:
        answer = sorted(tuple(round(x, 2) if isinstance(x, float) else x for x in row) for row in left.elements())
        assert answer == brute(name, given)
    for scheduling in ("nta", "tpa"):
        told = PIPELINE.measure(given, under(options, scheduling), 1)
        assert told["delay"] == told["delay_most"] == 0.0


@pytest.mark.parametrize("seed", range(3))
def test_input_triggered_sums_are_late_by_the_gap_to_the_next_tuple_that_passes(seed: int) -> None:
    given, options = asked("Q1", seed)
    passing = [ts for ts, _, price in rows(given, "s") if price > given.sales.bar]
    end = rows(given, "s")[-1][0]
    late = most = passing[0] - rows(given, "s")[0][0]  # no sum yet: so from the first tuple on, told when one passes
    for expiry in (ts + 5 * S + 1 for ts in passing):
        if expiry <= end:
            gap = next((ts for ts in passing if ts >= expiry), end) - expiry
            late, most = late + 2 * gap, max(most, gap)  # the old sum goes, the new one comes
    exact = len(given.due)
    ita = PIPELINE.measure(given, under(options, "ita"), seed)
    assert ita["delay"] == pytest.approx(late / S / exact, rel=1e-6)
    assert ita["delay_most"] == pytest.approx(most / S, rel=1e-6)


@pytest.mark.parametrize("name", QUERIES)
def test_the_other_schedulings_are_never_late_and_two_runs_agree(name: str) -> None:
    given, options = asked(name)
    told = {each: PIPELINE.measure(given, under(options, each), 0) for each in ("nta", "tpa", "ita")}
    assert told["nta"]["delay_most"] == told["tpa"]["delay_most"] == 0.0
    assert told["ita"]["delay_most"] > told["ita"]["delay"] > 0.0  # type: ignore[operator]
    assert told["nta"]["sent"] > told["tpa"]["sent"] >= 1.0  # type: ignore[operator]
    again = PIPELINE.prepare(options, 0, None)
    assert PIPELINE.measure(again, under(options, "ita"), 0) == told["ita"]


def test_the_clock_adds_work_to_the_delay_and_ends_with_the_outputs() -> None:
    given, options = asked("Q5", matches=0.9)
    timed = PIPELINE_CLOCK.measure(given, options, 0)
    assert timed["delay"] == 0.0
    assert timed["response"] == pytest.approx(timed["seconds"] / 1_200)  # type: ignore[operator]
    some = PIPELINE_CLOCK.measure(given, options.model_copy(update={"outputs": 5}), 0)
    assert some["seconds"] > 0.0  # type: ignore[operator]
    assert PIPELINE_CLOCK.measure(given, options.model_copy(update={"outputs": 10**6}), 0) == {"seconds": None}


def test_real_sales_are_two_streams_of_a_file_with_a_bar_for_the_share(tmp_path: Path) -> None:
    n = 40
    table = pa.table(
        {
            "t": pa.array(range(n), pa.timestamp("s")),
            "item": [f"i{k % 5}" for k in range(n)],
            "price": [k // 2 for k in range(n)],
            "shop": [k % 2 for k in range(n)],
        }
    )
    pq.write_table(table, tmp_path / "sales.parquet")
    data = Data(str(tmp_path / "sales.parquet"), "", "shop = 0", "shop = 1", "item", "t", "price", "shop")
    for passes, expected in ((0.25, 10), (1.0, 40)):
        sales = read(0, data, tuples=100, passes=passes, matches=0.4)
        prices = [column for side in "sr" for column in sales.streams[side][1][f"{side}.price"].to_pylist()]
        assert sum(price > sales.bar for price in prices) == expected
    assert [sales.streams[side][0][0] // S for side in "sr"] == [0, 1]
    assert len(sales.favourites) == 2
    assert sales.streams["s"][1]["s.item"].to_pylist()[:5] == [0, 1, 2, 3, 4]
    assert sales.streams["r"][1]["r.item"].to_pylist()[:5] == [3, 4, 0, 1, 2]


def test_schedulings_are_operators_of_their_own() -> None:
    names = {PIPELINE.operator(PipelineOptions(scheduling=each)) for each in ("nta", "tpa", "ita")}
    assert len(names) == 3
