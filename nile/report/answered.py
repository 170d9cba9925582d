"""What reports ask of the answers that they measure, so that no report knows the class of an answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np

from nile.base.budgets import GivenBudget
from nile.streams.accounting import Accounting

if TYPE_CHECKING:
    from nile.operators.aggregate.estimates import Number
    from nile.operators.common.plan import JoinPlan
    from nile.operators.inputs.joining import Joinable, Loaded
    from nile.operators.inputs.multiway import MultiwayJoinable
    from nile.operators.join.join import JoinFigures, JoinInput, Outputs
    from nile.operators.multiway.outputs import MultiwayFigures
    from nile.operators.selection.data import SelectionFigures
    from nile.operators.selection.plan import SelectionPlan
    from nile.preferences.budget import BudgetReport
    from nile.summaries.estimate import Estimate

__all__ = ["AnsweredAggregates", "AnsweredCombinations", "AnsweredJoin", "AnsweredSelections"]

Array = np.ndarray[Any, Any]


class _Answered(Protocol):
    @property
    def budget(self) -> BudgetReport:
        """Asked and spent."""


class _OfJoin(_Answered, Protocol):
    @property
    def plan(self) -> JoinPlan:
        """What it was asked."""

    @property
    def coverage(self) -> float:
        """The share of the exact outputs that was within reach."""

    @property
    def accounting(self) -> Mapping[str, Accounting]:
        """Where every tuple went, by stream."""

    @property
    def estimate(self) -> Estimate:
        """How many outputs the exact answer has."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What should be known before its numbers are used."""

    def again(self, budget: GivenBudget | None = None, **changes: Any) -> Self:
        """The same question over the same streams, with another budget or otherwise changed."""


class AnsweredJoin(_OfJoin, Protocol):
    """A join of two streams."""

    @property
    def joined(self) -> Joinable:
        """Its streams, as they were loaded."""

    @property
    def key(self) -> str:
        """The column joined on."""

    @property
    def input(self) -> JoinInput:
        """What its operator ran on."""

    @property
    def figures(self) -> JoinFigures:
        """Counts and costs of the run."""

    def pairs(self) -> Outputs:
        """Ordinals and weights of every pair found."""


class AnsweredCombinations(_OfJoin, Protocol):
    """A join of several streams, or of two under a condition on the pair."""

    @property
    def joined(self) -> MultiwayJoinable:
        """Its streams, as they were loaded."""

    @property
    def figures(self) -> MultiwayFigures:
        """Counts and costs of the run."""

    @property
    def arrival_keys(self) -> Array:
        """The key of each arrival: int64 [arrivals]."""

    @property
    def exact_outputs(self) -> int:
        """How many combinations the exact answer has."""

    def completions(self) -> tuple[Array, Array]:
        """The arrival that completed each combination found, and its weight."""


class AnsweredSelections(_Answered, Protocol):
    """Standing selections over one stream."""

    @property
    def plan(self) -> SelectionPlan:
        """What they were asked."""

    @property
    def loaded(self) -> Loaded:
        """Their stream."""

    @property
    def names(self) -> tuple[str, ...]:
        """Of the selections."""

    @property
    def figures(self) -> SelectionFigures:
        """Counts and costs of the run."""

    @property
    def accounting(self) -> Accounting:
        """Where every tuple went."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What should be known before the tuples are used."""

    def truth(self) -> list[Array]:
        """The tuples that satisfy each selection: ordinals."""

    def ordinals(self, name: str) -> Array:
        """The tuples found of one selection."""

    def again(self, budget: float, *, method: str | None = None) -> Self:
        """The same selections over the same stream, under another budget."""


class AnsweredAggregates(_Answered, Protocol):
    """Numbers by query and group."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What should be known before the numbers are used."""

    @property
    def coverage(self) -> float:
        """The share of the tuples that was read."""

    def numbers(self) -> Iterator[tuple[str, tuple[Any, ...], str, Number]]:
        """(query, group, name, number) of all of them."""
