"""Claims and verdicts: every predicate on curves small enough to judge by eye."""

from __future__ import annotations

from typing import Any

import pytest

from nile.experiments.atlas.claims import NEEDS, PREDICATES, Claim, Curve, judged
from nile.experiments.atlas.verdicts import FAILS, HOLDS, PART, UNDECIDED, verdict_of


def claim(predicate: str, **given: Any) -> Claim:
    told: dict[str, Any] = {
        "by": "paper", "says": "so", "metric": "m", "subjects": ("a",), "against": (), "at": (), "only": {},
        "margin": 0.0, "low": None, "high": None,
    }  # fmt: skip
    return Claim(predicate=predicate, **(told | given))


def breaks(one: Claim, *curves: list[float | None]) -> list[Any]:
    """Where each trial breaks; "holds" where it does not.  Curves are a, b, c over x = 1, 2, 3."""
    named: dict[str, Curve] = {
        name: {x: [figure] for x, figure in zip((1, 2, 3), curve, strict=True)}
        for name, curve in zip("abc", curves, strict=False)
    }
    return ["holds" if trial.holds else trial.x for trial in judged(one, named, (1, 2, 3))]


B = ("b",)


@pytest.mark.parametrize(
    ("one", "curves", "told"),
    [
        (claim("above", against=B), ([1.1, 2, 3], [1, 1, 1]), "holds"),
        (claim("above", against=B), ([1, 2, 3], [1, 1, 1]), 1),
        (claim("above", against=B), ([3, 2, 0], [1, 1, 1]), 3),
        (claim("above", against=B, margin=0.1), ([1, 2, 3], [1, 1, 1]), 1),
        (claim("above", against=B, margin=-0.1), ([0.95, 1, 1], [1, 1, 1]), "holds"),
        (claim("above", against=B, at=(2,)), ([0, 2, 0], [1, 1, 1]), "holds"),
        (claim("above", against=B), ([2, None, 3], [1, 1, 1]), 2),
        (claim("above", against=B), ([2, 2, 3], [1, None, 1]), "holds"),
        (claim("below", against=B), ([1, 2, 3], [None, None, None]), "holds"),
        (claim("falls"), ([1, None, 0],), 2),
        (claim("within", low=1.0, where_any=True), ([None, 1, 2],), "holds"),
        (claim("within", low=1.0, where_any=True), ([None, 1, 0],), 3),
        (claim("within", low=1.0, where_any=True), ([None, None, None],), 1),
        (claim("below", against=B), ([1, 1, 1], [1.5, 2, 3]), "holds"),
        (claim("below", against=B), ([1, 1, 1], [1, 2, 3]), 1),
        (claim("below", against=B, margin=0.5), ([1, 1, 1], [2, 1.4, 2]), 2),
        (claim("above", against=B), ([0, 0, 0], [0, 0, 0]), 1),
        (claim("above", against=B), ([0, 0, 1], [0, 0, 0]), 1),
        (claim("above", against=B, margin=-0.1), ([0, 0, 1], [0, 0, 0]), "holds"),
        (claim("below", against=B), ([0, 0, 0], [0, 0, 0]), 1),
        (claim("below", against=B, margin=-0.1), ([0, 0, 0], [0, 0, 0]), "holds"),
        (claim("grows", margin=-0.02), ([0, 0, 0],), 2),
        (claim("falls", margin=-0.02), ([0, 0, 0],), "holds"),
        (claim("falls", margin=-0.2), ([1, 1, 1.1],), "holds"),
        (claim("falls", margin=-0.2), ([1, 1.2, 1.44],), 3),
        (claim("crosses", against=B), ([0, 0, 0], [0, 0, 0]), 1),
        (claim("crosses", against=B), ([0, 0, 1], [0, 0, 1]), 3),
        (claim("grows"), ([1, 1, 2],), "holds"),
        (claim("grows", margin=0.01), ([1, 1, 2],), 2),
        (claim("grows"), ([1, 3, 2],), 3),
        (claim("falls"), ([3, 2, 1],), "holds"),
        (claim("falls"), ([3, 2, 2.5],), 3),
        (claim("ratio", against=B, low=2.0), ([2, 4, 6], [1, 2, 3]), "holds"),
        (claim("ratio", against=B, low=2.0), ([2, 3, 6], [1, 2, 3]), 2),
        (claim("ratio", against=B, low=1.0, high=2.0), ([1, 2, 9], [1, 2, 3]), 3),
        (claim("within", low=0.0, high=1.0), ([0, 0.5, 1],), "holds"),
        (claim("within", high=1.0), ([0, 2, 1],), 2),
        (claim("crosses", against=B), ([0, 5, 2], [1, 1, 1]), "holds"),
        (claim("crosses", against=B), ([2, 5, 2], [1, 1, 1]), 1),
        (claim("crosses", against=B), ([0, 5, 0], [1, 1, 1]), 3),
    ],
)
def test_a_predicate_names_the_first_place_that_breaks_it(
    one: Claim, curves: tuple[list[float | None], ...], told: Any
) -> None:
    assert breaks(one, *curves) == [told]


def test_an_order_is_judged_pair_by_pair() -> None:
    one = claim("order", subjects=("a", "b", "c"))
    assert breaks(one, [1, 1, 1], [2, 2, 2], [3, 1, 3]) == ["holds", 2]


def test_each_subject_is_judged_against_each_opponent() -> None:
    trials = judged(claim("above", against=("b", "c")), {"a": {1: [2.0]}, "b": {1: [1.0]}, "c": {1: [3.0]}}, (1,))
    assert [(one.opponent, one.holds, one.figure, one.other) for one in trials] == [
        ("b", True, None, None),
        ("c", False, 2.0, 3.0),
    ]


@pytest.mark.parametrize(
    ("mine", "theirs", "told"),
    [
        ([2.0, 2.1, 1.9], [1.0, 1.1, 0.9], (1, 0, 0)),  # paired, every seed is 1 ahead
        ([2.0, 0.5, 1.9], [1.0, 1.1, 0.9], (0, 0, 1)),  # ahead on average, by less than the seeds differ
        ([0.5, 0.4, 0.6], [1.0, 1.1, 0.9], (0, 1, 0)),
        ([1.0, 1.0, 1.0], [1.0, 1.0, 1.0], (0, 1, 0)),  # a tie is not above
        ([0.3, 0.1 + 0.2, 0.3], [0.3, 0.3, 0.3], (0, 1, 0)),  # nor is what rounding leaves of one
        ([2.0, None, 1.9], [1.0, 1.1, None], (1, 0, 0)),  # one seed has both: its sign
        ([None, 1.0, None], [1.0, None, 1.0], (0, 0, 1)),  # no seed has both
    ],
)
def test_a_place_is_decided_where_the_seeds_leave_no_doubt(
    mine: list[float | None], theirs: list[float | None], told: tuple[int, int, int]
) -> None:
    (trial,) = judged(claim("above", against=B), {"a": {1: mine}, "b": {1: theirs}}, (1,))
    assert (trial.kept, trial.broken, trial.undecided) == told


def test_a_broken_place_is_named_before_an_undecided_one() -> None:
    curves: dict[str, Curve] = {"a": {1: [2.0, 0.5], 2: [0.0, 0.0]}, "b": {1: [1.0, 1.0], 2: [1.0, 1.0]}}
    (trial,) = judged(claim("above", against=B), curves, (1, 2))
    assert (trial.x, trial.figure, trial.other, trial.kept, trial.broken, trial.undecided) == (2, 0.0, 1.0, 0, 1, 1)


@pytest.mark.parametrize(
    ("counts", "told"),
    [((2, 0, 0), HOLDS), ((1, 1, 0), PART), ((1, 0, 1), PART), ((0, 0, 2), UNDECIDED), ((0, 1, 1), FAILS)],
)
def test_a_verdict_follows_from_the_places(counts: tuple[int, int, int], told: str) -> None:
    assert verdict_of(*counts) == told


def test_what_was_not_measured_is_not_judged() -> None:
    assert judged(claim("above", against=B, at=(9,)), {"a": {1: [1.0]}, "b": {1: [1.0]}}, (1,)) == []
    assert judged(claim("grows"), {"a": {1: [1.0]}}, (1,)) == []
    assert judged(claim("above", against=B), {"a": {1: [1.0]}, "b": {}}, (1,)) == []


def test_every_predicate_says_what_it_cannot_do_without() -> None:
    assert set(NEEDS) == set(PREDICATES)
