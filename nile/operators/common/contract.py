"""What a driver asks of an operator that takes ordered input: one contract, whatever the number of streams.

Design.  An operator over one stream, two or several is handed arrivals in the total order and does nothing by itself: a
driver says how far to go and what may be spent on the way.  One-shot runs, meters (`nile.operators.drive.metered`), the
wall clock (`nile.operators.drive.wall_clock`), live streams (`nile.operators.drive.live`) and shared budgets
(`nile.operators.drive.dealt`) are drivers; none asks how many streams there are.
Law.  Where no credit is given, outputs, weights and figures do not depend on the ends at which `advance` stops.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol, Self, TypeVar

import numpy as np

from nile.exact.state.held import Held, State
from nile.preferences.budget import Budget
from nile.preferences.clock import Pace
from nile.pyramid.grid.manager import Memory
from nile.pyramid.grid.store import TupleStore
from nile.summaries.estimate import Estimate
from nile.summaries.heavy import pa

__all__ = ["Asked", "Driven", "Figures", "Found", "Kept", "LiveOperator", "Operator", "ReadJoin", "Spending"]

Array = np.ndarray[Any, Any]


class Found(Protocol):
    """A batch of outputs, in the order found."""

    def __len__(self) -> int: ...

    def first(self, count: int) -> Self:
        """The first outputs of the batch."""


class Asked(Protocol):
    """What a driver reads of a plan."""

    @property
    def budget(self) -> Budget | None:
        """None: no limit."""

    @property
    def pace(self) -> Pace:
        """How the input is played back."""


class Spending(Protocol):
    """What every operator tells of its work; costs in units of its cost table."""

    @property
    def arrivals(self) -> int:
        """Tuples that have come."""

    @property
    def outputs(self) -> int:
        """Outputs found."""

    @property
    def granted(self) -> float:
        """What there was to spend, in units of the cost table."""

    @property
    def exact_cost(self) -> float:
        """What the exact answer costs, in units of the cost table."""

    @property
    def budget_spent(self) -> float:
        """What was spent as a share of the exact answer's cost."""


class Figures(Spending, Protocol):
    """What a join tells besides."""

    @property
    def admitted(self) -> int:
        """Tuples taken in."""

    @property
    def shed(self) -> tuple[int, ...]:
        """Tuples of each stream turned away."""

    @property
    def coverage(self) -> float:
        """The mean share of the window, in time, that a probe could still reach."""


Out = TypeVar("Out", bound=Found, covariant=True)


class Driven(Protocol[Out]):
    """What a driver moves: an operator over ordered input, whole or still coming."""

    @property
    def plan(self) -> Asked:
        """What was asked."""

    @property
    def arrivals(self) -> int:
        """Tuples of the input so far, all streams together."""

    @property
    def fed(self) -> int:
        """Arrivals it has gone on to."""

    @property
    def spent(self) -> float:
        """Spent so far, in units of the cost table."""

    @property
    def credit(self) -> float:
        """Granted and not yet spent, in units of the cost table."""

    @property
    def figures(self) -> Spending:
        """What has been done so far."""

    def advance(self, end: int, *, credit: float | None = None) -> Iterator[Out]:
        """Go on to arrival `end`.

        credit: cost granted for these arrivals, or for what waits when there are none, in place of the plan's
        budget (None).
        """

    def example(self) -> Operator[Any]:
        """One of the same plan over a small input, whose run loads every kernel that this one's will."""


class Operator(Driven[Out], Protocol[Out]):
    """An operator over ordered input that was handed over whole: a join, or standing selections."""

    def times(self) -> Array:
        """The time of each arrival: int64 [arrivals] ns."""

    def finish(self) -> None:
        """There is no more: arrivals that have not been taken in count as shed."""


class LiveOperator(Driven[Out], Protocol[Out]):
    """An operator over ordered input that comes as it goes, of one stream, two or several; range records are expanded.

    Driven by `nile.operators.drive.live`: `push` what has come, `advance`, `let_go`.  Law: outputs, weights, figures
    and what `capture` gives do not depend on how the input was cut into pushes.
    """

    @property
    def plan(self) -> Asked:
        """What was asked."""

    @property
    def figures(self) -> Figures:
        """What has been done so far."""

    @property
    def estimate(self) -> Estimate:
        """How many single outputs the exact answer has so far."""

    @property
    def memory(self) -> Memory:
        """Bytes held."""

    @property
    def tuples(self) -> Array:
        """Tuples of each stream that have come: int64 [n]."""

    @property
    def last(self) -> int | None:
        """ts of the newest of them, ns; None where none is held."""

    def push(self, ts: tuple[Array, ...], keys: tuple[pa.Array, ...]) -> None:
        """Tuples of each stream whose turn has come, in its order; none before what was pushed."""

    @property
    def sampled(self) -> bool:
        """Whether what it finds is a sample, whose rates go by what is granted."""

    @property
    def to_come(self) -> float:
        """What arrivals that it has not gone on to will grant, in units of the cost table."""

    def take_back(self, units: float) -> None:
        """So much less credit; below 0: more."""

    def afford(self, end: int, share: float, planned: float) -> None:
        """Those up to `end` grant a share of it.  planned: by what share the rates of a sample go, of no coin's making;
        its coins make up for the rest."""

    def let_go(self) -> None:
        """All that was pushed has been advanced to: forget what cannot be reached any more."""

    def needed_from(self) -> tuple[int, ...]:
        """Of each stream, the first ordinal that may still be an output's member."""

    def capture(self) -> State:
        """What it holds, as plain values."""

    def restore(self, held: Held, keys: tuple[pa.Array, ...]) -> None:
        """Be where the operator was that gave the state; keys: of the tuples it needed.  Raises EnvelopeError."""


class Kept(Protocol):
    """A stream that others keep: its tuples come in, and leave, as they say."""

    @property
    def store(self) -> TupleStore:
        """Its tuples and their summary."""

    @property
    def admissions(self) -> Array:
        """Admission each tuple came through, 0 where it was shed: float64 [tuples]."""

    @property
    def shed_at(self) -> Array:
        """ts at which a tuple of each key was last shed: int64 [keys]."""


class ReadJoin(Protocol[Out]):
    """What an answer reads of a join, whoever drives it."""

    @property
    def figures(self) -> Figures:
        """What has been done so far."""

    @property
    def shed(self) -> tuple[int, ...]:
        """Tuples of each stream turned away."""

    @property
    def coverage(self) -> float:
        """The mean share of the window, in time, that a probe could still reach."""

    @property
    def memory(self) -> Memory:
        """Bytes held."""

    def expand(self, outputs: Any) -> Out:
        """The single outputs that range records stand for; single ones as they are."""
