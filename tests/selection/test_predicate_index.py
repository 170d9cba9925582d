"""The predicate index against what each predicate says of each value, and conditions of which one column is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from nile.expressions.binding import bind
from nile.expressions.conditions import parse_condition
from nile.expressions.outcomes import is_ordered, outcomes
from nile.operators.common.predicate_index import EDGE, FULL, NONE, PredicateIndex


def says_of(values: list[int], ranges: list[tuple[int, int]]) -> np.ndarray[Any, Any]:
    return np.array([[FULL if low <= v <= high else NONE for v in values] for low, high in ranges], np.uint8)


def test_two_overlapping_ranges_cut_the_values_into_cells() -> None:
    """Values 5 1 3 2 4 in order of arrival; A: 2 to 4, B: 3 to 5.  Intervals: 1 | 2 | 3 4 | 5."""
    values = [5, 1, 3, 2, 4]
    index = PredicateIndex.of(says_of(values, [(2, 4), (3, 5)]), np.array(values))
    assert index.interval.tolist() == [3, 0, 2, 1, 2]
    assert index.cell.tolist() == [3, 0, 2, 1, 2]
    assert [index.satisfied(cell).tolist() for cell in range(index.cells)] == [[], [0], [0, 1], [1]]
    assert index.runs.tolist() == [[1, 3, FULL], [2, 4, FULL]]
    assert index.run_from.tolist() == [0, 1, 2]


def test_intervals_of_which_all_predicates_say_the_same_are_one_cell() -> None:
    """A: 2 or 4 of 1 2 3 4 5: the intervals 1, 3 and 5 are one cell, and A has one run."""
    says = np.array([[NONE, FULL, NONE, FULL, NONE]], np.uint8)
    index = PredicateIndex.of(says, np.arange(5))
    assert index.interval.tolist() == [0, 1, 2, 3, 4]
    assert index.cell.tolist() == [0, 1, 0, 1, 0]
    assert index.runs.tolist() == [[1, 2, FULL]]


@settings(max_examples=100)
@given(some.integers(0, 6), some.integers(0, 12), some.randoms(use_true_random=False))
def test_cells_and_runs_say_of_each_key_what_the_predicates_say(queries: int, keys: int, chance: Any) -> None:
    says = np.array([[chance.choice([NONE, FULL, EDGE]) for _ in range(keys)] for _ in range(queries)], np.uint8)
    says = says.reshape(queries, keys)
    rank = np.array(chance.sample(range(keys), keys), np.int64)
    index = PredicateIndex.of(says, rank)
    for k in range(keys):
        cell = int(index.cell[k])
        assert index.satisfied(cell).tolist() == np.flatnonzero(says[:, k] == FULL).tolist()
        assert index.open(cell).tolist() == np.flatnonzero(says[:, k] == EDGE).tolist()
        for q in range(queries):
            runs = index.runs[index.run_from[q] : index.run_from[q + 1]]
            assert sum(int(kind) for first, last, kind in runs if first <= cell < last) == says[q, k]
    assert index.cells == len({says[:, k].tobytes() for k in range(keys)})


ROWS = pa.RecordBatch.from_pydict(
    {"v": pa.array([1, 5, None]), "w": pa.array([2, None, 7]), "t": pa.array(["ab", "b", None])}
)


@pytest.mark.parametrize(
    "text",
    [
        "v < 3",
        "v < 3 AND w > 1",
        "v < 3 OR w > 1",
        "NOT (v < 3 OR w > 1)",
        "NOT (v < 3) AND (w IS NULL OR v = 5)",
        "v + w > 3",
        "w IS NULL AND NOT t LIKE 'a%'",
        "coalesce(v, w) = 7 OR v IN (5, NULL)",
    ],
)
def test_outcomes_hold_whatever_the_other_columns_are(text: str) -> None:
    """For each v the truth over all combinations with w and t is among the outcomes, and certain means certain."""
    condition = parse_condition(text, where="test")
    tree = bind(condition.tree, ROWS.schema, where="test")
    found = outcomes(tree, ROWS.select(["v"]))
    for i, v in enumerate(ROWS["v"].to_pylist()):
        rows = [(v, w, t) for w in ROWS["w"].to_pylist() for t in ROWS["t"].to_pylist()]
        columns = [
            pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), ROWS.schema.types, strict=True)
        ]
        truth = condition.mask(pa.RecordBatch.from_arrays(columns, names=["v", "w", "t"])).to_pylist()
        assert (True in truth) <= bool(found.true[i])
        assert (False in truth) <= bool(found.false[i])
        assert (None in truth) <= bool(found.null[i])
        if found.is_certain[i]:
            assert set(truth) == {True}


@pytest.mark.parametrize(
    ("text", "ordered"),
    [
        ("v < 3 AND NOT v IN (1, 2)", True),
        ("v BETWEEN 1 AND 2 OR v IS NULL", True),
        ("3 >= v", True),
        ("t LIKE 'ab%'", True),
        ("t LIKE 'ab'", True),
        ("t LIKE '%b'", False),
        ("t LIKE 'a_'", False),
        ("t ILIKE 'ab%'", False),
        ("v * 2 < 29", False),
        ("v % 2 = 0 AND v < 3", False),
        ("length(t) = 2", False),
    ],
)
def test_what_follows_from_the_order_of_values_needs_no_look_at_each(text: str, ordered: bool) -> None:
    condition = parse_condition(text, where="test")
    tree = bind(condition.tree, ROWS.schema, where="test")
    assert is_ordered(tree, condition.columns[0]) is ordered


def test_a_comparison_with_another_column_asks_nothing_of_this_one() -> None:
    tree = bind(parse_condition("v < 3 AND v + w > 1", where="test").tree, ROWS.schema, where="test")
    assert is_ordered(tree, "v")
    assert is_ordered(tree, "w")
