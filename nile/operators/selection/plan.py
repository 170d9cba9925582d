"""Standing selections as they were asked for: checked, complete, and without any running state."""

from __future__ import annotations

from dataclasses import dataclass, field

from nile.preferences.budget import Budget
from nile.preferences.clock import Pace
from nile.preferences.preference import PREFERENCES, preference_number
from nile.pyramid.grid.spec import CONFIDENCES, SLICE, STRUCTURES
from nile.summaries.costs import ENGINE, CostTable
from nile.summaries.errors import BudgetError, ConfigError

__all__ = ["OUTPUTS", "PROMISES", "SELECTION_METHODS", "SelectionPlan"]

SELECTION_METHODS = ("nile", "paper", "naive", "predicate-index", "shed-uniform")
"""nile: one predicate index, shedding at admission; paper: Figure 8; naive: each query fed for itself; predicate-index:
one index over all predicates, no summary; shed-uniform: that index behind a random admission, which is told how many
tuples the budget can answer."""

PROMISES = ("share", "value")
"""share: the estimated share of satisfying tuples of a region; value: the sum of |value| x frequency over them."""

OUTPUTS = ("pairs", "ranges")


@dataclass(frozen=True, slots=True)
class SelectionPlan:
    """Everything that decides what standing selections over one stream answer.

    window: ns that a selected tuple stays valid, or None (a filter).  budget: its fraction is of what `naive`
    needs for everything; None: no limit.  preference: which regions first (desc, asc), or of all the same
    share (weighted).  promise: what regions are ordered by.  output: `pairs`, a query and a tuple each; `ranges`, one
    record for the tuples of a run of cells in a zone (methods without value order give records of one tuple).
    pace: how arrivals grant work; waiting: arrivals that may wait for credit under a replay before the oldest is shed.
    zone: the most tuples of a zone; every: arrivals between dispatches of `paper`.
    Of `paper` alone: structure (see SummarySpec; T3 by default), confidence and threshold (T4's zones end where
    the confidence falls below it), buckets: value buckets; sample: first tuples, which their borders are learned from.
    The opponents have no preference, no summary, and ignore what is about them.
    Raises ConfigError for a setting outside its range, BudgetError for a budget that the method cannot have.
    """

    window: int | None = None
    budget: Budget | None = None
    method: str = "nile"
    preference: str = "desc"
    promise: str = "share"
    output: str = "pairs"
    costs: CostTable = ENGINE
    pace: Pace = field(default_factory=Pace)
    structure: str = "T3"
    confidence: str = "two-window"
    threshold: float = 0.02
    buckets: int = 64
    zone: int = 16 * SLICE
    every: int = SLICE
    sample: int = 4 * SLICE
    waiting: int = 1024
    seed: int = 0

    def __post_init__(self) -> None:
        for name, value, known in (
            ("method", self.method, SELECTION_METHODS),
            ("preference", self.preference, PREFERENCES),
            ("promise", self.promise, PROMISES),
            ("output", self.output, OUTPUTS),
            ("structure", self.structure, STRUCTURES),
            ("confidence", self.confidence, CONFIDENCES),
        ):
            if value not in known:
                raise ConfigError(
                    f"selection {name}: needed one of {', '.join(known)}; got {value!r}; name one of these"
                )
        for name, size, least, most in (
            ("buckets", self.buckets, 1, 4096),
            ("zone", self.zone, 1, 1 << 30),
            ("every", self.every, 1, 1 << 30),
            ("sample", self.sample, 1, 1 << 30),
            ("waiting", self.waiting, 0, 1 << 30),
            ("seed", self.seed, 0, (1 << 63) - 1),
        ):
            if isinstance(size, bool) or not isinstance(size, int) or not least <= size <= most:
                raise ConfigError(
                    f"selection {name}: needed a whole number, {least} to {most}; got {size!r}; "
                    "leave it out for the default"
                )
        threshold = self.threshold
        if isinstance(threshold, bool) or not isinstance(threshold, int | float) or not 0.0 <= threshold < 1.0:
            raise ConfigError(
                f"selection threshold: needed a confidence in [0, 1); got {threshold!r}; "
                "0 never ends a zone early, 0.02 is the default"
            )
        if self.budget is not None and self.budget.unit != "fraction" and self.method == "shed-uniform":
            raise BudgetError(
                "budget: needed a fraction with method 'shed-uniform', which works out beforehand how many tuples to "
                f"shed; got {self.budget.unit}; ask for a fraction, or for another method"
            )
        if self.budget is not None and self.budget.share is not None and not self.pace.is_replay:
            raise BudgetError(
                "budget: needed an input that is played back in time for a share of a core; got replay 'none'; "
                "set replay to 'data' or 'exponential', or ask for seconds_per_tuple"
            )
        if self.window is not None and (self.window < 0 or self.window >= 1 << 62):
            raise ConfigError(
                f"window: needed a duration of 0 to 146 years; got {self.window} ns; leave it out for a filter"
            )

    @property
    def fraction(self) -> float:
        """The budget's fraction; 1 where there is no limit, or another unit is metered outside of the kernels."""
        return 1.0 if self.budget is None or self.budget.fraction is None else self.budget.fraction

    @property
    def preference_number(self) -> int:
        """The number kernels know the preference by."""
        return preference_number(self.preference)

    @property
    def is_exact(self) -> bool:
        """Whether the budget buys everything: none, or a fraction of 1 or more without a replay."""
        if self.budget is None:
            return True
        return self.budget.fraction is not None and self.budget.fraction >= 1.0 and not self.pace.is_replay
