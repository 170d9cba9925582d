"""Aggregates that take back what they added: exact sums, ordered multisets, every type."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from workload_pipeline import told

from nile.exact.pipeline.pipeline import Changes, Pipeline
from nile.exact.plan.algebra import Aggregate, Distinct, Group, Join, Range, Rows, Scan, Unbounded
from nile.exact.state.group_kernels import AT_ONCE, apply_counts, count_pairs, number_pairs
from nile.exact.state.rows import grown
from nile.exact.state.totals import sums_kernels
from nile.exact.state.totals.sums_kernels import add_double, rounded
from nile.summaries.errors import SumOverflow

NAN, INF = math.nan, math.inf


def plainly(out: list[Changes]) -> list[tuple[int, int, Any]]:
    """(ts, sign, first column) of changes, as they are."""
    return [
        each
        for one in out
        for each in zip(one.ts.tolist(), one.sign.tolist(), one.rows.column(0).to_pylist(), strict=True)
    ]


def last_of(function: str, values: Any, kind: Any, window: Any, batch: int = 1 << 20) -> list[Any]:
    """The aggregate after each tuple of a stream of one tuple per nanosecond, `batch` of which come at once."""
    schema = pa.schema([("v", kind)])
    plan = Group(Scan("s", schema, window, 0), (), (Aggregate("a", function, "v"),))  # type: ignore[arg-type]
    pipeline = Pipeline(plan)
    ts = np.arange(len(values))
    rows = pa.RecordBatch.from_arrays([pa.array(values, kind)], schema=schema)
    out: list[Changes] = []
    for begin in range(0, len(ts), batch):
        out += pipeline.push("s", ts[begin : begin + batch], rows.slice(begin, batch))
    out += pipeline.finish()
    by_time = {ts: row for ts, sign, row in plainly(out) if sign > 0}
    found, now = [], None
    for at in ts.tolist():
        now = by_time.get(at, now)
        found.append(now)
    return found


def same(a: Any, b: Any) -> bool:
    return a == b or (isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b))


def bits(value: float) -> int:
    return int(np.array(value).view(np.int64))


@pytest.fixture
def _in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the Python of a kernel calls is Python, too."""
    monkeypatch.setattr(sums_kernels, "_digits_of", sums_kernels._digits_of.py_func)


@pytest.mark.usefixtures("_in_python")
@pytest.mark.parametrize("spread", [0, 40, 300, 2000])
def test_an_exact_sum_equals_fsum_whatever_the_spread_of_exponents(spread: int) -> None:
    rng = np.random.default_rng(spread)
    for _ in range(200):
        n = int(rng.integers(1, 40))
        exponents = np.clip(rng.integers(-spread // 2 - 1, spread // 2 + 1, n), -1074, 1000)
        values = [float(math.ldexp(m, int(e))) for m, e in zip(rng.standard_normal(n), exponents, strict=True)]
        digits = np.zeros(70, np.int64)
        for value in values:
            add_double.py_func(digits, bits(value), True, 0)
        scratch = np.zeros(70, np.int64)
        assert rounded(digits, 0, scratch) == math.fsum(values)
        gone = values[: n // 2]
        for value in gone:
            add_double.py_func(digits, bits(value), False, 0)
        assert rounded(digits, 0, scratch) == math.fsum(values[n // 2 :])


@pytest.mark.usefixtures("_in_python")
@pytest.mark.parametrize("value", [5e-324, -5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, 0.1, -1.0])
def test_an_exact_sum_of_one_value_is_the_value(value: float) -> None:
    digits, scratch = np.zeros(70, np.int64), np.zeros(70, np.int64)
    add_double.py_func(digits, bits(value), True, 0)
    assert rounded(digits, 0, scratch) == value


def test_a_sum_beyond_all_doubles_is_infinite_until_it_comes_back() -> None:
    huge = 1.7976931348623157e308
    assert last_of("sum", [huge, huge, 1.0, 2.0], pa.float64(), Rows(2)) == [huge, INF, huge, 3.0]


def test_a_ties_to_even_rounding_is_the_one_of_fsum() -> None:
    values = [9007199254740992.0, 1.0, 1.0, 1e-30, -1e-30, 1.0]
    assert last_of("sum", values, pa.float64(), Unbounded()) == [math.fsum(values[: i + 1]) for i in range(len(values))]


def test_sums_after_a_million_comings_and_goings_equal_fresh_ones() -> None:
    rng = np.random.default_rng(1)
    values = rng.standard_normal(200_000) * 10.0 ** rng.integers(-12, 12, 200_000)
    found = last_of("sum", values, pa.float64(), Range(99))
    for at in range(0, 200_000, 1999):
        assert found[at] == math.fsum(values[max(0, at - 99) : at + 1])


def test_what_a_huge_value_hid_is_there_when_it_has_gone() -> None:
    assert last_of("sum", [1.0, 1e300, 2.0, 3.0], pa.float64(), Rows(2)) == [1.0, 1e300, 1e300, 5.0]
    assert last_of("sum", [1e-300, 1e300, 1e-300, 1e-300], pa.float64(), Rows(2))[-1] == 2e-300


def test_nan_and_infinities_leave_a_sum_as_they_leave_the_window() -> None:
    values = [1.0, NAN, 2.0, 3.0, INF, 4.0, -INF, 5.0, 6.0, 7.0]
    expected = [1.0, NAN, NAN, 5.0, INF, INF, -INF, -INF, 11.0, 13.0]
    found = last_of("sum", values, pa.float64(), Rows(2))
    assert all(same(a, b) for a, b in zip(found, expected, strict=True)), found
    assert math.isnan(last_of("sum", [INF, -INF], pa.float64(), Unbounded())[-1])


def test_whole_numbers_sum_exactly_and_beyond_64_bits_raise() -> None:
    top = 2**63 - 1
    assert last_of("sum", [top, -1, -top, top], pa.int64(), Rows(2)) == [top, top - 1, -top - 1, 0]
    with pytest.raises(SumOverflow, match="9223372036854775808"):
        last_of("sum", [top, 1], pa.int64(), Rows(2))


def test_a_sum_may_pass_64_bits_inside_one_instant() -> None:
    schema = pa.schema([("v", pa.int64())])
    pipeline = Pipeline(Group(Scan("s", schema, Unbounded(), 0), (), (Aggregate("a", "sum", "v"),)))
    rows = pa.record_batch([[2**63 - 1, 1, -5]], schema=schema)
    out = pipeline.push("s", np.zeros(3, np.int64), rows) + pipeline.finish()
    assert told(out) == [(0, 1, (2**63 - 5,))]


def test_averages_of_whole_numbers_beyond_64_bits_stand() -> None:
    top = 2**63 - 1
    assert last_of("avg", [top, top], pa.int64(), Rows(2)) == [float(top), float(top)]
    assert last_of("avg", [2**64 - 1, 2**64 - 1], pa.uint64(), Rows(2)) == [2.0**64, 2.0**64]
    assert last_of("sum", [2**63 - 2, 1], pa.uint64(), Rows(2))[-1] == 2**63 - 1


def test_truth_values_add_up() -> None:
    assert last_of("sum", [True, False, True, None], pa.bool_(), Unbounded()) == [1, 1, 2, 2]


def test_aggregates_of_nothing_are_null_and_counts_are_0() -> None:
    for function, empty in [("sum", None), ("avg", None), ("min", None), ("max", None), ("median", None), ("count", 0)]:
        assert last_of(function, [None, None], pa.float64(), Rows(1)) == [empty, empty]


ORDERED = {
    "int64": (pa.int64(), lambda rng, n: [int(v) for v in rng.integers(-9, 9, n)]),
    "int8": (pa.int8(), lambda rng, n: [int(v) for v in rng.integers(-128, 128, n)]),
    "uint64": (pa.uint64(), lambda rng, n: [int(v) + 2**63 - 4 for v in rng.integers(0, 9, n)]),
    "float32": (pa.float32(), lambda rng, n: [float(np.float32(v)) for v in rng.standard_normal(n)]),
    "double": (pa.float64(), lambda rng, n: [[-INF, -1.5, -0.0, 0.0, 2.0, INF, NAN][i] for i in rng.integers(0, 7, n)]),
    "bool": (pa.bool_(), lambda rng, n: [bool(v) for v in rng.integers(0, 2, n)]),
    "text": (pa.string(), lambda rng, n: [["", "a", "B", "zz", "é", "日"][i] for i in rng.integers(0, 6, n)]),
    "large": (pa.large_string(), lambda rng, n: ["x" * int(v) for v in rng.integers(0, 30, n)]),
    "coded": (pa.dictionary(pa.int32(), pa.string()), lambda rng, n: ["abcd"[v] for v in rng.integers(0, 4, n)]),
    "bytes": (pa.binary(), lambda rng, n: [bytes([v]) for v in rng.integers(0, 256, n)]),
    "decimal": (pa.decimal128(12, 2), lambda rng, n: [Decimal(int(v)) / 4 for v in rng.integers(-99, 99, n)]),
    "date": (pa.date32(), lambda rng, n: [date(2024, 1, int(v)) for v in rng.integers(1, 29, n)]),
    "time": (pa.timestamp("us"), lambda rng, n: [datetime(2024, 1, int(v)) for v in rng.integers(1, 29, n)]),
    "zoned": (
        pa.timestamp("ms", "UTC"),
        lambda rng, n: [datetime(2024, 1, int(v), tzinfo=UTC) for v in rng.integers(1, 29, n)],
    ),
}


def by_order(values: list[Any]) -> list[Any]:
    return sorted(values, key=lambda v: (isinstance(v, float) and math.isnan(v), v))


@pytest.mark.parametrize("name", ORDERED)
def test_min_and_max_of_every_type_are_those_of_the_window(name: str) -> None:
    kind, make = ORDERED[name]
    values = make(np.random.default_rng(2), 120)
    values = [None if i % 11 == 0 else value for i, value in enumerate(values)]
    for function, at in (("min", 0), ("max", -1)):
        found = last_of(function, values, kind, Rows(7))
        for i in range(len(values)):
            window = by_order([v for v in values[max(0, i - 6) : i + 1] if v is not None])
            assert same(found[i], window[at] if window else None), (i, found[i], window)


def test_the_median_is_that_of_the_window_as_it_grows_and_shrinks() -> None:
    rng = np.random.default_rng(4)
    values = rng.integers(-50, 50, 400).tolist()
    found = last_of("median", values, pa.int64(), Range(30))
    assert found == [float(np.median(values[max(0, i - 30) : i + 1])) for i in range(400)]


def test_a_median_of_times_is_a_time() -> None:
    values = [datetime(2024, 1, 1), datetime(2024, 1, 3)]
    assert last_of("median", values, pa.timestamp("us"), Unbounded()) == [values[0], datetime(2024, 1, 2)]


def test_the_median_of_two_huge_values_does_not_overflow() -> None:
    assert last_of("median", [1.7e308, 1.6e308], pa.float64(), Unbounded())[-1] == pytest.approx(1.65e308)


@pytest.mark.parametrize("name", ORDERED)
def test_every_type_can_be_grouped_told_apart_and_joined(name: str) -> None:
    kind, make = ORDERED[name]
    values = [*make(np.random.default_rng(3), 60), None]
    left, right = pa.schema([("v", kind)]), pa.schema([("w", kind)])
    batch = pa.RecordBatch.from_arrays([pa.array(values, kind)], schema=left)
    ts = np.arange(len(values))
    key = [("nan" if isinstance(v, float) and math.isnan(v) else v) for v in values]
    counts = {v: key.count(v) for v in key}

    grouped = Pipeline(Group(Scan("s", left, Unbounded(), 0), ("v",), (Aggregate("n", "count"),)), emit="snapshot")
    grouped.push("s", ts, batch)
    assert dict(row for _, _, row in told(grouped.finish())) == counts
    different = Pipeline(Distinct(Scan("s", left, Unbounded(), 0)), emit="snapshot")
    different.push("s", ts, batch)
    assert {row[0] for _, _, row in told(different.finish())} == set(key)

    join = Join(Scan("a", left, Unbounded(), 0), Scan("b", right, Unbounded(), 1), (("v", "w"),))
    joined = Pipeline(join, emit="append")
    joined.push("a", ts, batch)
    joined.push("b", ts, pa.RecordBatch.from_arrays(batch.columns, schema=right))
    joined.finish()
    assert joined.costs["pairs"] == sum(n * n for v, n in counts.items() if v is not None)


def test_a_column_that_is_never_anything_but_null_has_null_aggregates() -> None:
    for function in ("sum", "avg", "min", "max", "median"):
        assert last_of(function, [None, None], pa.null(), Rows(1)) == [None, None]


def test_text_that_never_comes_again_is_forgotten() -> None:
    schema = pa.schema([("v", pa.string())])
    plan = Group(Scan("s", schema, Range(50), 0), ("v",), (Aggregate("m", "max", "v"),))
    pipeline, sizes = Pipeline(plan), []
    for step in range(30):
        ts = np.arange(step * 1000, step * 1000 + 1000)
        texts = pa.array([f"value {t}" for t in ts])
        pipeline.push("s", ts, pa.RecordBatch.from_arrays([texts], schema=schema))
        sizes.append(pipeline.memory)
    assert max(sizes[20:]) <= 1.05 * max(sizes[:20])
    assert {row[0] for row in zip(*(c.to_pylist() for c in pipeline.snapshot().columns), strict=True)} >= {
        "value 29990"
    }


def test_text_that_comes_back_beside_a_new_one_is_found_again() -> None:
    """Past 4,096 values those that no group holds are forgotten, but not those of the batch at hand."""
    texts = [f"value {i % 9000:05d}" for i in range(20_000)]
    wanted = [max(texts[max(0, at - 10) : at + 1]) for at in range(len(texts))]
    assert last_of("max", texts, pa.string(), Range(10), batch=7_000) == wanted
    assert last_of("max", texts, pa.string(), Range(10)) == wanted


@pytest.mark.parametrize(
    "values",
    [
        lambda rng: rng.normal(size=90),
        lambda rng: 1e15 + rng.integers(0, 3, 90),
        lambda rng: rng.normal(size=90) * 10.0 ** rng.integers(-300, 150, 90),
        lambda rng: rng.choice([5e-324, -5e-324, 1e-200, 2.0**-1022, 0.0], 90),
    ],
    ids=["plain", "far from 0", "of every size", "tiny"],
)
@pytest.mark.parametrize(("function", "freedom"), [("var_samp", 1), ("var_pop", 0)])
def test_a_variance_is_that_of_exact_arithmetic_whatever_has_left(values: Any, function: str, freedom: int) -> None:
    drawn = values(np.random.default_rng(3)).tolist()
    told = last_of(function, drawn, pa.float64(), Range(9), batch=17)
    for at, mine in enumerate(told):
        held = [Fraction(x) for x in drawn[max(0, at - 9) : at + 1]]
        n = len(held)
        if n <= freedom:
            assert mine is None
            continue
        exact = (n * sum(x * x for x in held) - sum(held) ** 2) / n / (n - freedom)
        assert mine == pytest.approx(float(exact), rel=4e-16, abs=1e-323)


@pytest.mark.parametrize("instants", [400, 60, 3, 1])
def test_which_groups_instants_touch_is_what_a_loop_finds(instants: int) -> None:
    """Groups that come, go and come again, several at one instant and in turns."""
    draw = np.random.default_rng(instants)
    n, groups, born = 400, 40, 1_000
    ts, codes = np.sort(draw.integers(0, instants, n)), draw.integers(0, groups, n)
    weight = draw.integers(-2, 3, n)
    counts, births, mark = np.arange(groups) % 3, np.zeros(groups, np.int64), np.full(groups, -1)
    begins, touch, *pairs = (np.empty(n, np.int64) for _ in range(7))
    now, since = counts.tolist(), births.tolist()
    runs, found = number_pairs(ts, weight, codes, mark, 0, begins, touch, *pairs)
    at, group, after, first, last = (each[:found] for each in pairs)
    before = np.empty(found, np.int64)
    count_pairs(group, before, after, first, counts, births, born)
    of_tuples = np.repeat(touch[:runs], np.diff([*begins[:runs].tolist(), n]))
    assert runs == 1 + int(((ts[1:] != ts[:-1]) | (codes[1:] != codes[:-1])).sum())
    expected = []
    for instant in np.unique(ts).tolist():
        own = np.flatnonzero(ts == instant)
        for each in dict.fromkeys(codes[own].tolist()):
            mine = own[codes[own] == each]
            was, now[each] = now[each], now[each] + int(weight[mine].sum())
            since[each] = since[each] if was else born + int(mine[0])
            assert (of_tuples[mine] == len(expected)).all()
            expected.append((instant, each, was, now[each], mine[0], mine[-1]))
    told = zip(*(each.tolist() for each in (at, group, before, after, first, last)), strict=True)
    assert list(told) == expected
    assert (counts.tolist(), births.tolist(), set(mark.tolist())) == (now, since, {-1})


@pytest.mark.parametrize("parts", [1, 2, 4])
@pytest.mark.parametrize("ragged", [False, True])
def test_parts_of_the_groups_that_work_for_themselves_count_what_a_loop_counts(parts: int, ragged: bool) -> None:
    """More runs than a part looks through at once; a group belongs to one part, and each part writes its own alone."""
    draw = np.random.default_rng(parts)
    n, groups = 3 * AT_ONCE + 7, 100
    ts, codes = np.arange(n) // 5, draw.integers(0, groups, n)
    weight, valid = draw.integers(-2, 3, n), draw.random(n) < 0.8
    begins, touch, *pairs = (np.empty(n + 1, np.int64) for _ in range(7))
    runs, found = number_pairs(ts, weight, codes, np.full(groups, -1), 0, begins, touch, *pairs)
    begins[runs] = n
    begins, touch, first, last = begins[: runs + 1], touch[:runs], pairs[3][:found], pairs[4][:found]
    if not ragged:  # every tuple is a run
        begins, touch = np.empty(0, np.int64), np.repeat(touch, np.diff(begins))
    now, old, new = grown(np.zeros(0, np.int64), groups), np.full(found, -99), np.full(found, -99)
    scratch = np.empty(AT_ONCE, np.int64)
    for part in range(parts):
        apply_counts(weight, codes, valid, begins, touch, first, last, now, old, new, part, parts - 1, scratch)
        others = (np.arange(now.shape[0]) >> 3) & (parts - 1) > part
        assert not now[others].any()
    held, expected = [0] * groups, []
    for instant in np.unique(ts).tolist():
        own = np.flatnonzero(ts == instant)
        for each in dict.fromkeys(codes[own].tolist()):
            was = held[each]
            held[each] += int(weight[own[(codes[own] == each) & valid[own]]].sum())
            expected.append((was, held[each]))
    assert list(zip(old.tolist(), new.tolist(), strict=True)) == expected
    assert now[:groups].tolist() == held
    assert now.__array_interface__["data"][0] % 64 == 0
