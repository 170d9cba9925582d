"""What is wrong with a plan is told before the first tuple; what is wrong with the input, when it comes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from nile.exact.pipeline.pipeline import Pipeline, check
from nile.exact.plan.algebra import (
    Aggregate,
    Distinct,
    GraphJoin,
    Group,
    Join,
    Minus,
    Plan,
    Project,
    Range,
    Rows,
    Scan,
    Union,
)
from nile.summaries.errors import ConfigError, KeyTypeError, TimestampOrderError, UnknownColumn, UnknownStream


def scan(position: int = 0, window: int = 5, **columns: Any) -> Scan:
    kinds = columns or {"k": pa.int64(), "v": pa.float64()}
    return Scan(f"s{position}", pa.schema(list(kinds.items())), Range(window), position)


A, B, C = (scan(i, **{f"k{i}": pa.int64()}) for i in range(3))
TEXT = scan(3, k3=pa.string())
LIST = scan(0, k=pa.list_(pa.list_(pa.int64())))


@pytest.mark.parametrize(
    ("plan", "error", "match"),
    [
        (Join(A, A), ConfigError, "k0 twice"),
        (Join(A, scan(0, k9=pa.int64())), ConfigError, "position of its own"),
        (Join(A, TEXT, (("k0", "k3"),)), KeyTypeError, "int64 and string"),
        (Join(A, scan(1, f=pa.float64()), (("k0", "f"),)), KeyTypeError, "cast one side"),
        (Join(A, B, (("k0", "k11"),)), UnknownColumn, "did you mean 'k1'"),
        (Union(A, scan(1), all=True), ConfigError, "1 and 2"),
        (Minus(A, TEXT, all=False), KeyTypeError, "int64 and k3 of string"),
        (Distinct(LIST), KeyTypeError, "told equal"),
        (Group(LIST, ("k",), ()), KeyTypeError, "told equal"),
        (Group(scan(), ("kk",), ()), UnknownColumn, "'kk'"),
        (Group(scan(), (), ()), ConfigError, "one column or more"),
        (Group(scan(), (), (Aggregate("a", "sum"),)), ConfigError, "only count"),
        (Group(scan(), (), (Aggregate("a", "mean", "v"),)), ConfigError, "did you mean 'median'"),  # type: ignore[arg-type]
        (Group(TEXT, (), (Aggregate("a", "sum", "k3"),)), KeyTypeError, "a type with a sum"),
        (Group(TEXT, (), (Aggregate("a", "median", "k3"),)), KeyTypeError, "a type with a median"),
        (Group(scan(), ("k",), (Aggregate("k", "count"),)), ConfigError, "k twice"),
        (Scan("s", pa.schema([]), Range(1), 0), ConfigError, "one column or more"),
        (scan(0, k=pa.string_view()), KeyTypeError, "cast it to string"),
        (GraphJoin((A,), None, ()), ConfigError, "two inputs or more"),
        (GraphJoin((A, B, C), None, ((0, 1, 5),)), ConfigError, r"none to \[2\]"),
        (GraphJoin((A, B), None, ((0, 1, 0),)), ConfigError, "above 0 ns"),
        (GraphJoin((A, B), None, ((0, 2, 5),)), ConfigError, "number them from 0"),
        (GraphJoin((A, B), ("k0",), ((0, 1, 5),)), ConfigError, "one key column of each"),
        (GraphJoin((A, TEXT), ("k0", "k3"), ((0, 1, 5),)), KeyTypeError, "int64 and string"),
        (GraphJoin((A, B), ("k0", "k1"), ((0, 1, 5),), algorithm="chained"), ConfigError, "did you mean 'chain'"),
        (GraphJoin((A, B), None, ((0, 1, 5),), algorithm="bew-hash"), ConfigError, "algorithm"),
        (GraphJoin((A, Distinct(B)), None, ((0, 1, 5),)), ConfigError, "got Distinct"),
        (GraphJoin((A, B), None, ((0, 1, 5), (1, 0, 5)), directed=True), ConfigError, "one direction"),
        (GraphJoin((A, B, C), None, ((0, 1, 5), (1, 2, 5), (2, 0, 5)), directed=True), ConfigError, "a path"),
        (GraphJoin((A, B, C), None, ((0, 1, 5), (0, 2, 5)), directed=True), ConfigError, "a path"),
    ],
)
def test_a_plan_that_cannot_work_is_refused(plan: Plan, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        check(plan)
    with pytest.raises(error):
        Pipeline(plan)


@pytest.mark.parametrize("window", [0, -1, True, 1.5, None])
def test_a_window_that_is_none_is_refused(window: Any) -> None:
    if window is True or window != 0:  # 0 is NOW
        with pytest.raises(ConfigError, match="window"):
            Range(window)
    with pytest.raises(ConfigError, match="window"):
        Rows(window)


@pytest.mark.parametrize(("setting", "value"), [("scheduling", "fifo"), ("emit", "all")])
def test_settings_are_named_when_they_are_wrong(setting: str, value: str) -> None:
    with pytest.raises(ConfigError, match=setting):
        Pipeline(scan(), **{setting: value})  # type: ignore[arg-type]


def rows(n: int = 1) -> Any:
    return pa.record_batch({"k": pa.array(range(n), pa.int64()), "v": pa.array([0.0] * n)})


def test_tuples_out_of_order_are_refused_with_their_row() -> None:
    pipeline = Pipeline(scan())
    pipeline.push("s0", np.array([5]), rows())
    with pytest.raises(TimestampOrderError, match=r"got 4 after 5 \(row 0"):
        pipeline.push("s0", np.array([4]), rows())
    with pytest.raises(TimestampOrderError, match=r"got 6 after 7 \(row 2"):
        pipeline.push("s0", np.array([5, 7, 6]), rows(3))
    pipeline.advance(9)
    with pytest.raises(TimestampOrderError, match="got 9 after 10"):
        pipeline.push("s0", np.array([9]), rows())
    assert pipeline.costs["tuples"] == 1


def test_input_that_does_not_fit_is_refused() -> None:
    pipeline = Pipeline(scan())
    with pytest.raises(UnknownStream, match="needed one of s0"):
        pipeline.push("s1", np.array([1]), rows())
    with pytest.raises(UnknownStream, match="close"):
        pipeline.close("s1")
    with pytest.raises(ConfigError, match="got 2 and 1"):
        pipeline.push("s0", np.array([1, 2]), rows())
    with pytest.raises(UnknownColumn, match="'v'"):
        pipeline.push("s0", np.array([1]), rows().select(["k"]))
    pipeline.finish()
    with pytest.raises(ConfigError, match="after finish"):
        pipeline.push("s0", np.array([9]), rows())


def test_more_columns_than_the_scan_names_are_not_kept() -> None:
    pipeline = Pipeline(scan())
    wide = rows().append_column("more", pa.array(["text"]))
    assert pipeline.push("s0", np.array([1]), wide) == []
    assert pipeline.finish()[0].rows.schema.names == ["k", "v"]


def test_a_projection_that_makes_other_columns_than_it_said_is_refused() -> None:
    plan = Project(scan(), lambda batch: batch.select(["k"]), scan().schema)
    with pytest.raises(UnknownColumn, match="'v'"):
        Pipeline(plan).push("s0", np.array([1]), rows())
