"""Negative tuples: the paper's own examples and algorithms, and what input-triggered scheduling does to them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from oracle_pipeline import forget, key, rows_of, snapshot
from twin_pipeline import Distinct as PrintedDistinct
from twin_pipeline import Minus as PrintedMinus
from workload_pipeline import case, changes, told

from nile.exact.pipeline.build import Reader, build
from nile.exact.pipeline.pipeline import Pipeline
from nile.exact.pipeline.schedule import EARLIEST, Clock
from nile.exact.plan.algebra import Aggregate, Distinct, Group, Join, Minus, Plan, Range, Scan, Select

PRICE = pa.schema([("price", pa.int64())])
LETTER = pa.schema([("letter", pa.string())])


def first_example(scheduling: str) -> list[tuple[int, int, int]]:
    """Figure 1(a): the sum of prices above 4 in a window; T1 to T6 are 6 to 11; (ts, sign, sum) from T1 on."""
    plan = Group(
        Select(Scan("sales", PRICE, Range(5), 0), lambda rows: pc.greater(rows["price"], 4)),
        (),
        (Aggregate("total", "sum", "price"),),
    )
    pipeline = Pipeline(plan, scheduling)  # type: ignore[arg-type]
    price = [6, 9, 3, 4, 5, 8, 2, 3, 4, 7]
    out = pipeline.push("sales", np.arange(1, 11), pa.record_batch([price], schema=PRICE)) + pipeline.finish()
    return [(ts, sign, row[0]) for ts, sign, row in told(out) if ts >= 6]


@pytest.mark.parametrize("scheduling", ["nta", "tpa"])
def test_the_papers_first_example_reports_28_22_13_and_20_when_they_hold(scheduling: str) -> None:
    found = [(ts, total) for ts, sign, total in first_example(scheduling) if sign > 0]
    assert found == [(6, 28), (7, 22), (8, 13), (10, 20)]


def test_input_triggered_reports_22_and_13_only_with_the_next_input() -> None:
    """Section 2.2: at best 22 and 13 are released immediately before 20, with delays T5 - T2 and T5 - T3."""
    found = [(ts, total) for ts, sign, total in first_example("ita") if sign > 0]
    assert found == [(6, 28), (10, 22), (10, 13), (10, 20)]


def letters(plan: Plan, streams: dict[str, list[tuple[int, str]]], end: int, scheduling: str) -> list[Any]:
    pipeline = Pipeline(plan, scheduling)  # type: ignore[arg-type]
    out = []
    for name, tuples in streams.items():
        if tuples:
            rows = pa.record_batch([pa.array([value for _, value in tuples])], schema=LETTER)
            out += pipeline.push(name, np.array([ts for ts, _ in tuples]), rows)
    return [(ts, sign, row[0]) for ts, sign, row in told(out + pipeline.finish(end))]


def scan(name: str, window: int, position: int = 0) -> Scan:
    return Scan(name, LETTER, Range(window), position)


def netted(changes_: list[tuple[int, int, str]]) -> Counter[tuple[int, str]]:
    net: Counter[tuple[int, str]] = Counter()
    for ts, sign, value in changes_:
        net[ts, value] += sign
    return Counter({each: n for each, n in net.items() if n})


def random_letters(rng: np.random.Generator, n: int) -> list[tuple[int, str]]:
    times = np.unique(rng.integers(0, 4 * n + 1, n))
    return [(int(t), "ABCDE"[rng.integers(4)]) for t in times]


@pytest.mark.parametrize("scheduling", ["nta", "tpa"])
def test_distinct_does_what_algorithm_4_1_does(scheduling: str) -> None:
    for seed in range(40):
        rng = np.random.default_rng(seed)
        tuples, window = random_letters(rng, 25), int(rng.integers(1, 25))
        twin, expected = PrintedDistinct(window), []
        for now in range(150):
            expected += twin.expire(now)
            for each in tuples:
                expected += twin.arrive(each) if each[0] == now else []
        found = letters(Distinct(scan("s", window)), {"s": tuples}, 149, scheduling)
        assert netted(found) == netted(expected), seed


@pytest.mark.parametrize("scheduling", ["nta", "tpa"])
def test_minus_does_what_algorithm_4_2_does(scheduling: str) -> None:
    for seed in range(40):
        rng = np.random.default_rng(seed)
        left, right, window = random_letters(rng, 25), random_letters(rng, 20), int(rng.integers(1, 25))
        twin, expected = PrintedMinus(window), []
        for now in range(150):
            expected += twin.expire(now)
            for each in left:
                expected += twin.arrive_s(each) if each[0] == now else []
            for each in right:
                expected += twin.arrive_r(each) if each[0] == now else []
        plan = Minus(scan("s", window), scan("r", window, 1), all=True)
        assert netted(letters(plan, {"s": left, "r": right}, 149, scheduling)) == netted(expected), seed


FIGURE_7 = {"s": [(1, "B"), (2, "A"), (3, "C"), (7, "E")], "r": [(4, "E"), (5, "A")]}


@pytest.mark.parametrize("scheduling", ["nta", "tpa"])
def test_minus_invalidates_a_and_brings_e_as_in_figure_7(scheduling: str) -> None:
    """T2 is 5 (A arrives in R), T3 is 7 (E arrives in S), T4 is 15, when E of R expires."""
    plan = Minus(scan("s", 10), scan("r", 10, 1), all=True)
    assert letters(plan, FIGURE_7, 15, scheduling) == [
        (1, 1, "B"),
        (2, 1, "A"),
        (3, 1, "C"),
        (5, -1, "A"),
        (12, -1, "B"),
        (14, -1, "C"),
        (15, 1, "E"),
    ]


def test_algorithm_4_2_as_printed_misses_the_invalid_a_of_its_own_example() -> None:
    twin = PrintedMinus(10, printed=True)
    out = list(twin.arrive_s((2, "A"))) + list(twin.arrive_r((5, "A")))
    assert out == [(2, 1, "A")]
    amended = PrintedMinus(10)
    assert [*amended.arrive_s((2, "A")), *amended.arrive_r((5, "A"))] == [(2, 1, "A"), (5, -1, "A")]


def test_the_four_cases_of_section_4_1_all_arise() -> None:
    """What comes in (sign) and what goes out (sign), for MINUS: all four."""
    plan = Minus(scan("s", 10), scan("r", 4, 1), all=True)
    streams = {"s": [(0, "A"), (1, "B")], "r": [(2, "A")]}
    found = letters(plan, streams, 20, "nta")
    assert (0, 1, "A") in found  # 1: positive in, positive out
    assert (2, -1, "A") in found  # 2: positive in (R), negative out
    assert (7, 1, "A") in found  # 3: negative in (R), positive out
    assert (12, -1, "B") in found  # 4: negative in, negative out


def test_input_triggered_is_late_and_never_early_and_right_again_with_every_input() -> None:
    """Where all operators see every tuple, the state at each arrival is the snapshot's: only silence hides expiry."""
    plan = Group(scan("s", 6), (), (Aggregate("n", "count"),))
    rng = np.random.default_rng(2)
    for _ in range(30):
        tuples = random_letters(rng, 20)
        late = letters(plan, {"s": tuples}, 200, "ita")
        exact = letters(plan, {"s": tuples}, 200, "nta")
        arrivals = [ts for ts, _ in tuples]
        for now in arrivals:
            state = Counter(value for ts, sign, value in late if ts <= now for _ in range(1) if sign > 0)
            state.subtract(value for ts, sign, value in late if ts <= now and sign < 0)
            true = Counter(value for ts, sign, value in exact if ts <= now and sign > 0)
            true.subtract(value for ts, sign, value in exact if ts <= now and sign < 0)
            assert +state == +true
        assert {ts for ts, _, _ in late} <= set(arrivals)


def test_input_triggered_runs_every_plan_and_differs_from_the_truth() -> None:
    wrong = 0
    for seed in range(30):
        one = case(seed)
        late = told(changes(one, "ita", seed)[0])
        exact = told(changes(one, "nta", seed)[0])
        wrong += sorted(map(repr, late)) != sorted(map(repr, exact))
    assert wrong > 10


def test_time_probing_sends_no_negative_tuples_through_selections_and_joins() -> None:
    """Section 3.1: only invalid tuples travel; what expires does so where it is stored."""
    schemas = [pa.schema([(name, pa.int64())]) for name in "ab"]
    join = Join(Scan("a", schemas[0], Range(5), 0), Scan("b", schemas[1], Range(5), 1), (("a", "b"),))
    signs = {}
    for scheduling in ("nta", "tpa"):
        clock = Clock(scheduling, 0)
        root, built = build(join, clock, Reader())
        for arrivals, schema in zip(built.arrivals, schemas, strict=True):
            arrivals.push(np.array([1, 2]), pa.record_batch([[7, 8]], schema=schema))
        signs[scheduling] = root.step(100).sign.tolist()
    assert signs == {"nta": [1, 1, -1, -1], "tpa": [1, 1]}


def test_get_time_is_the_clock_of_whoever_is_behind_below() -> None:
    clock = Clock("tpa", 0)
    plan = Group(
        Select(Distinct(scan("s", 5)), lambda rows: pc.is_valid(rows["letter"])), (), (Aggregate("n", "count"),)
    )
    root, _ = build(plan, clock, Reader())
    assert root.time() == EARLIEST
    root.step(40)
    assert root.time() == 40
    assert root.operator.inputs[0].time() == 40  # type: ignore[attr-defined]


def test_an_operator_with_nothing_to_do_hands_control_back() -> None:
    for scheduling in ("nta", "tpa", "ita"):
        for seed in range(20):
            one = case(seed)
            pipeline = Pipeline(one.plan, scheduling)  # type: ignore[arg-type]
            assert sum(len(each) for now in range(5) for each in pipeline.advance(now)) < 20


def test_the_oracle_itself_knows_a_window() -> None:
    forget()
    tuples = {"s": [(1, ("A",)), (4, ("B",))]}
    assert snapshot(scan("s", 3), tuples, 4) == [("A",), ("B",)]
    assert snapshot(scan("s", 3), tuples, 5) == [("B",)]
    assert key((float("nan"), -0.0)) == ("nan", 0.0)
    assert rows_of(pa.record_batch([["A"]], schema=LETTER)) == [("A",)]
