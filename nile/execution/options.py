"""Options of a statement: what `Database.sql` accepts besides the text."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from nile.base.budgets import GivenBudget, read_budget
from nile.base.durations import parse_duration
from nile.exact.join.wjoin import ALGORITHMS, STRATEGIES
from nile.preferences.budget import Budget
from nile.preferences.clock import Pace
from nile.summaries.errors import BudgetError, ConfigError

__all__ = ["ALGORITHMS", "EMITS", "ENGINES", "SCHEDULINGS", "Options"]

EMITS = ("append", "changes", "snapshot")
SCHEDULINGS = ("ita", "tpa", "nta")
ENGINES = ("local", "spark")
_EXACT = ("emit", "algorithm", "scheduling", "windows")
_APPROXIMATE = ("method", "guide", "output", "outlier_cap", "replay", "replay_mean", "speed", "by")


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a statement; None: chosen automatically, and EXPLAIN says why.

    For exact queries: emit, one of EMITS; scheduling, one of SCHEDULINGS; algorithm, one of ALGORITHMS; windows, one
    of STRATEGIES: how non-uniform windows are kept.  For approximate ones: budget (a Budget or a
    fraction, where the statement says none), method, guide, output ("pairs", "ranges"), costs, seed, outlier_cap,
    replay with replay_mean and speed, by (what a selection's preference weighs: "share", "value"), confidence (of
    intervals), and using: fields of a summary or of a plan.  engine: "spark" scans streams of a lake by tasks, best
    partitions first, and starts a standing query over streaming DataFrames (with checkpoint, into, every, parts: see
    `nile.spark.standing.started`); "local" (the default) runs in this process.  Raises ConfigError.
    """

    budget: GivenBudget | None = None
    emit: str | None = None
    algorithm: str | None = None
    scheduling: str | None = None
    windows: str | None = None
    output: str | None = None
    method: str | None = None
    guide: str | None = None
    costs: str | None = None
    seed: int | None = None
    outlier_cap: int | None = None
    replay: str | None = None
    replay_mean: Any = None
    speed: float | None = None
    by: str | None = None
    confidence: float | None = None
    engine: str | None = None
    using: tuple[tuple[str, Any], ...] = field(default=())

    def __post_init__(self) -> None:
        known = {
            "emit": EMITS, "scheduling": SCHEDULINGS, "algorithm": ALGORITHMS, "windows": STRATEGIES, "engine": ENGINES
        }  # fmt: skip
        for name, values in known.items():
            given = getattr(self, name)
            if given is not None and given not in values:
                near = difflib.get_close_matches(str(given), values, n=1)
                hint = f"did you mean {near[0]!r}?" if near else "name one of these"
                raise ConfigError(f"{name}: needed one of {', '.join(values)}; got {given!r}; {hint}")
        if self.budget is not None and not isinstance(self.budget, Budget):
            object.__setattr__(self, "budget", read_budget(self.budget))

    @classmethod
    def of(cls, given: dict[str, Any]) -> Options:
        """From keyword arguments; what is no option of its own goes to `using`."""
        own = {each.name for each in fields(cls)} - {"using"}
        rest = tuple((name, value) for name, value in given.items() if name not in own)
        return cls(**{name: value for name, value in given.items() if name in own}, using=rest)

    def said(self) -> tuple[tuple[str, Any], ...]:
        """What was said of an approximate query beside its budget, by name."""
        given = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in ("budget", "using")}
        return tuple(sorted((*((name, value) for name, value in given.items() if value is not None), *self.using)))

    def given(self, *names: str) -> dict[str, Any]:
        """Those of these options that were said."""
        return {name: value for name, value in self.said() if name in names}

    def with_budget(self, stated: tuple[str, float] | None, what: str = "query") -> Budget | None:
        """The budget that was given, or else the statement's own: its unit and amount.

        what: of what, in words.  Raises BudgetError where there are both.
        """
        own = None if stated is None else Budget.of(*stated)
        if self.budget is None:
            return own
        assert isinstance(self.budget, Budget)
        if own is not None:
            raise BudgetError(
                f"{what}, budget: needed one; got {own} in the statement, and {self.budget} beside it; leave one of "
                "them out"
            )
        return self.budget

    def pace(self) -> Pace:
        """How the input is played back.  Raises ConfigError."""
        if self.replay is None:
            return Pace()
        mean = "100 ms" if self.replay_mean is None else self.replay_mean
        return Pace(self.replay, parse_duration(mean, where="mean"))

    def refuse(self, names: Sequence[str], needed: str) -> None:
        """Raises ConfigError for the first of these options that was said.  needed: what it is for, what came."""
        for name in self.given(*names):
            raise ConfigError(f"{name}: needed {needed}; leave it out")

    def check_exact(self) -> None:
        """Raises ConfigError for what only an approximate query can use."""
        given = [name for name in _APPROXIMATE if getattr(self, name) is not None]
        given += [name for name, _ in self.using]
        if given:
            known = [each.name for each in fields(self) if each.name != "using"]
            near = difflib.get_close_matches(given[0], known, n=1)
            hint = (
                f"did you mean {near[0]!r}?" if near and near[0] != given[0] else "say WITH PREFERENCE, or leave it out"
            )
            raise ConfigError(f"{given[0]}: needed a query WITH PREFERENCE, BUDGET or ERROR; got an exact one; {hint}")

    def check_approximate(self) -> None:
        """Raises ConfigError for what only an exact query can use."""
        given = [name for name in _EXACT if getattr(self, name) is not None]
        if given:
            raise ConfigError(
                f"{given[0]}: needed an exact query; got one WITH PREFERENCE, BUDGET or ERROR, which appends what it "
                "finds; leave the preference out"
            )
