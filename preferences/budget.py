"""How much work a query may do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields

from nile.preferences.finite import is_finite_number, plain_number
from nile.summaries.errors import BudgetError

__all__ = ["BUDGET_UNITS", "Budget", "BudgetReport"]


@dataclass(frozen=True, slots=True)
class Budget:
    """What a query may use: exactly one of six.

    fraction: of the work of the exact answer, on the cost clock.  After arrival i the method has been granted
    fraction * sum over j <= i of c_j, where c_j = insert + lookup + emit * (exact window matches of j).
    Unspent grant is kept; nothing is granted after the input ends.  1 or more: the whole answer.
    share: of one core, in (0, 1], while the input is played back in time (it needs a replay).
    seconds_per_tuple: CPU seconds per arrival; what one leaves unspent is kept for the next.
    seconds: CPU seconds from the call to the last batch read, excluding the caller's own work between batches.
    deadline: seconds of wall-clock time, from the call on: the best answer by then.
    outputs: at most so many, a whole number, and the work that they take: of two streams under desc and asc the most
    promising, else spread evenly over the arrivals.
    share, seconds and deadline read a clock of this machine: such a run is not reproducible.  fraction and
    outputs count operations: the same seed gives the same answer everywhere.
    Raises BudgetError for none or two of them, zero, a negative, a NaN, a share above 1, part of an output.
    Source: DESIGN section 2; the paper grants the time between two arrivals (section 2, equation 1).
    """

    fraction: float | None = None
    share: float | None = None
    seconds_per_tuple: float | None = None
    seconds: float | None = None
    outputs: int | None = None
    deadline: float | None = None

    def __post_init__(self) -> None:
        given = [field.name for field in fields(self) if getattr(self, field.name) is not None]
        if len(given) != 1:
            told = f"{' and '.join(given)}" if given else "none"
            raise BudgetError(
                f"budget: needed exactly one of {', '.join(BUDGET_UNITS)}; got {told}; Budget(fraction=0.1) is a "
                "tenth of the exact work"
            )
        unit = given[0]
        value = plain_number(getattr(self, unit))
        object.__setattr__(self, unit, value)
        if not _NEEDED[unit][1](value):
            raise BudgetError(f"budget: needed {_NEEDED[unit][0]}; got {value!r}; {_NEEDED[unit][2]}")

    @classmethod
    def of(cls, unit: str, amount: float) -> Budget:
        """The budget of `amount` in one of BUDGET_UNITS."""
        if unit not in BUDGET_UNITS:
            raise BudgetError(f"budget: needed one of {', '.join(BUDGET_UNITS)}; got {unit!r}; name one of these")
        whole = unit == "outputs" and isinstance(amount, float) and amount.is_integer()
        return cls(**{unit: int(amount) if whole else amount})  # type: ignore[arg-type]

    @property
    def unit(self) -> str:
        """Which of BUDGET_UNITS was given."""
        return next(name for name in BUDGET_UNITS if getattr(self, name) is not None)

    @property
    def amount(self) -> float:
        """How much of it."""
        return float(getattr(self, self.unit))

    @property
    def is_timed(self) -> bool:
        """Whether it bounds time from the call on: of the CPU, or on the wall."""
        return self.unit in ("seconds", "seconds_per_tuple", "deadline")

    def nanoseconds(self, tuples: int) -> float:
        """Of one of time over so many tuples: ns in all."""
        return 1e9 * self.amount * (tuples if self.unit == "seconds_per_tuple" else 1)

    @property
    def is_reproducible(self) -> bool:
        """Whether the same seed gives the same answer: not if the budget is measured in time."""
        return self.unit in ("fraction", "outputs")

    def __str__(self) -> str:
        return _NEEDED[self.unit][3].format(self.amount)


@dataclass(frozen=True, slots=True)
class BudgetReport:
    """The budget asked and spent, both in `unit` (one of BUDGET_UNITS).

    fraction: what was spent on the cost clock, as a share of the exact answer's cost, whatever the unit.
    reproducible: whether the same seed would spend the same again.  cpu_seconds: CPU time of the thread that asked and
    read, and of those that helped it to join, from the call to the last batch, excluding the caller's own work in
    between; None if nothing was timed.
    parts: spending by step, as shares of the exact answer's cost: steps of a strategy (read, look, admit, copy, join,
    count, draw, hand out), or insert and hit, or, of selections and aggregates, summary and tuples.
    granted: what there was to spend on the cost clock, as such a share, over time as it was given; None where nothing
    but a clock or a number of outputs bounded it, or nothing did.
    rechosen: where the way of answering was re-chosen while it ran: from which, when, why and for what; else empty.
    """

    asked: float
    spent: float
    unit: str
    fraction: float
    reproducible: bool = True
    cpu_seconds: float | None = field(default=None, compare=False)
    parts: Mapping[str, float] = field(default_factory=dict, compare=False)
    granted: float | None = field(default=None, compare=False)
    rechosen: str = field(default="", compare=False)


def _is_positive(value: object) -> bool:
    return is_finite_number(value) and value > 0


def _is_share(value: object) -> bool:
    return _is_positive(value) and value <= 1.0  # type: ignore[operator]


def _is_count(value: object) -> bool:
    return isinstance(value, int) and _is_positive(value)


# Of each unit: what is needed, whether it is met, what to do, how to say an amount.
_NEEDED: dict[str, tuple[str, Callable[[object], bool], str, str]] = {
    "fraction": (
        "a fraction above 0, such as 0.1 for a tenth of the exact work",
        _is_positive,
        "use 1 for the whole answer",
        "{:g} of the exact cost",
    ),
    "share": ("a share of one core in (0, 1]", _is_share, "0.2 is a fifth of a core", "{:g} of one core"),
    "seconds_per_tuple": (
        "CPU seconds per tuple above 0",
        _is_positive,
        "1e-6 is a million tuples per second",
        "{:g} CPU seconds per tuple",
    ),
    "seconds": ("CPU seconds above 0", _is_positive, "0.5 is half a second", "{:g} CPU seconds in all"),
    "deadline": (
        "seconds above 0 by the clock on the wall",
        _is_positive,
        "2 is an answer within two seconds",
        "{:g} seconds by the clock",
    ),
    "outputs": ("a whole number of outputs above 0", _is_count, "1000 is a thousand", "{:.0f} outputs"),
}
BUDGET_UNITS = tuple(_NEEDED)
