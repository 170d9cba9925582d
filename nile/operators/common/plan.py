"""A window join as it was asked for: checked, complete, and without any running state."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from nile.base.budgets import GivenBudget, read_budget
from nile.preferences.budget import Budget
from nile.preferences.clock import Pace
from nile.preferences.fade import Fade
from nile.preferences.preference import PREFERENCES, preference_number
from nile.pyramid.grid.spec import SummarySpec
from nile.summaries.costs import ENGINE, CostTable
from nile.summaries.errors import BudgetError, ConfigError

__all__ = [
    "FORESEEING", "GUIDES", "METHODS", "OUTPUTS", "PREFERRING", "QUEUES", "SCANNING", "STRATEGIES", "JoinPlan",
    "default_spec", "told_preference",
]  # fmt: skip

METHODS = ("nile", "paper", "hash-drop", "hash-backlog", "scan", "hash-buckets", "shed-uniform", "hash-keys")
PREFERRING = ("nile", "paper")
"""Methods that have preferences.  An opponent answers the same under each, but that those which look keys up leave out,
under asc, what their own lists do not call an outlier, and that `hash-keys` stops at a sample under weighted."""
FORESEEING = ("shed-uniform", "hash-keys")
"""Methods that work out beforehand, from what the exact answer costs, what to shed."""
SCANNING = ("paper", "scan", "hash-buckets")
"""Methods without a key directory: they have no position lists to give ranges of."""
GUIDES = ("countsketch", "directory")
OUTPUTS = ("pairs", "ranges")
QUEUES = ("one", "own")
"""Of method `paper`: the best entry first, whosever it is; or the current arrival's before any that wait."""
STRATEGIES = ("auto", "exact", "counts", "keys", "prefix", "summary", "promise")
"""How a join of two streams may be answered: the whole of it; all tuples counted, then the best, or drawn, pairs alone;
keys chosen by their hash before anything is encoded; no pair at all; promising regions, tuple by tuple.  auto: the
best of these for the budget, by forecast (`nile.operators.strategies`)."""


def told_preference(method: str, preference: str) -> str:
    """The preference that a method is run with where others follow `preference`: opponents learn what an outlier is.

    `hash-keys` weighs its sample under weighted only, and fills its budget under the others.
    """
    return preference if method in PREFERRING or preference == "asc" or method == "hash-keys" else "desc"


def default_spec(window: int | None, *, ranking: bool = True, **options: object) -> SummarySpec:
    """The summary a join gets when none is described: G1 covers a quarter of the window, G2 the rest and more.

    ranking: whether estimates only rank regions.  One row of twice the usual width does that as well as three,
    for a third of the upkeep; asc must tell a rare key from one that shares its column with a heavy one.
    window: ns; None (the whole stream) gets G1 of an hour.  options: fields of SummarySpec that differ.
    """
    granularity = options.pop("granularity", None)
    if granularity is None:
        granularity = 3_600_000_000_000 if window is None else max(1, window // 4)
    if ranking and "rows" not in options and "columns" not in options:
        options |= {"rows": 1, "columns": 64}
    return SummarySpec(granularity=granularity, **options)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class JoinPlan:
    """Everything that decides what a join of two streams answers.

    window: ns, both ends included, or None for the whole stream.  method: `nile`; `paper`, the algorithm as
    printed, over the structure that `spec` names; or an opponent, which has no guide, and of preferences but asc's cap.
    outlier_cap: the most tuples of a key, both streams together, that make a pair an outlier.  queue: of `paper`, one
    of QUEUES.  waiting: arrivals that may wait for credit before the oldest is shed; None: see `patience`.
    blind: test only, every sketch estimate is read as 0.  preferred: whether a preference was
    given; a whole answer comes in the order of `nile.exact` all the same, unless it is `ordered`: that of standing
    queries differs only among what one arrival completes.
    strategy: one of STRATEGIES; "": that of the method, at the prices of `costs`.
    first: only so many outputs, the most promising ones first; None: all that the budget buys.
    ordered: a preference was given and no budget, which asks for the whole answer, the most promising outputs first.
    """

    window: int | None
    budget: Budget
    method: str = "nile"
    preference: str = "desc"
    guide: str = "countsketch"
    queue: str = "one"
    fade: Fade = field(default_factory=Fade)
    output: str = "pairs"
    costs: CostTable = ENGINE
    pace: Pace = field(default_factory=Pace)
    outlier_cap: int = 4
    spec: SummarySpec = field(default_factory=lambda: default_spec(None))
    seed: int = 0
    waiting: int | None = None
    blind: bool = False
    preferred: bool = True
    strategy: str = ""
    first: int | None = None
    ordered: bool = False

    def __post_init__(self) -> None:
        for name, value, known in (
            ("method", self.method, METHODS),
            ("preference", self.preference, PREFERENCES),
            ("guide", self.guide, GUIDES),
            ("output", self.output, OUTPUTS),
            ("queue", self.queue, QUEUES),
            ("strategy", self.strategy or "auto", STRATEGIES),
        ):
            if value not in known:
                raise ConfigError(f"{name}: needed one of {', '.join(known)}; got {value!r}; name one of these")
        if self.output == "ranges" and self.method in SCANNING:
            raise ConfigError(
                f"output: needed 'pairs' with method {self.method!r}, which scans and has no position lists to give "
                "ranges of; got 'ranges'; ask for pairs, or leave this method out"
            )
        if self.method == "nile" and self.guide == "countsketch" and self.spec.structure == "T1" and not self.is_exact:
            raise ConfigError(
                "guide: needed a summary of the join column, which guide 'countsketch' asks what promises most; got "
                "structure 'T1', which keeps none; choose structure 'T4', or guide 'directory'"
            )
        if self.budget.unit != "fraction" and self.method in FORESEEING:
            raise BudgetError(
                f"budget: needed a fraction with method {self.method!r}, which works out beforehand how many tuples to "
                f"shed; got {self.budget.unit}; ask for a fraction, or for another method"
            )
        if self.budget.share is not None and not self.pace.is_replay:
            raise BudgetError(
                "budget: needed an input that is played back in time for a share of a core; got replay 'none'; "
                "set replay to 'data' or 'exponential', or ask for seconds_per_tuple"
            )
        if self.strategy not in ("", "promise") and (hinders := self.unplanned()):
            raise ConfigError(
                f"strategy: needed pairs by method 'nile' over finite input; got {hinders}; leave the "
                "strategy out, or say strategy='promise'"
            )
        if self.strategy == "prefix" and self.preference != "desc":
            raise ConfigError(
                "strategy: needed preference desc with 'prefix', which finds what comes first; got "
                f"{self.preference!r}; say strategy='auto'"
            )
        if self.window is not None and self.window < 0:
            raise ConfigError(f"window: needed a duration of 0 or more; got {self.window} ns; try '1 hour'")
        if self.first is not None and (
            isinstance(self.first, bool) or not isinstance(self.first, int) or self.first < 1
        ):
            raise ConfigError(f"limit: needed a whole number of 1 or more; got {self.first!r}; 1000 is a thousand")
        if isinstance(self.outlier_cap, bool) or not isinstance(self.outlier_cap, int) or self.outlier_cap < 2:
            raise ConfigError(
                f"outlier_cap: needed a whole number of 2 or more (a pair has two tuples); got {self.outlier_cap!r}; "
                "4 is the default"
            )

    def changed(self, budget: GivenBudget | None = None, **changes: Any) -> JoinPlan:
        """The same under another budget (None: its own) and with changed fields; a seed is that of the summary too."""
        if budget is not None:
            changes["budget"] = read_budget(budget)
        if changes.get("method", self.method) != self.method:
            changes.setdefault("strategy", "")  # opponents have none
        if "seed" in changes:
            changes["spec"] = replace(changes.get("spec", self.spec), seed=changes["seed"])
        return replace(self, **changes)

    @property
    def fraction(self) -> float:
        """The budget's fraction of the exact cost; 1 where another unit is metered outside of the kernels."""
        return 1.0 if self.budget.fraction is None else self.budget.fraction

    @property
    def preference_number(self) -> int:
        """The number kernels know the preference by."""
        return preference_number(self.preference)

    @property
    def patience(self) -> int:
        """Arrivals that may wait for credit before the oldest is shed.

        An opponent of the paper drops, so it waits only under a replay, where credit comes with time.  The
        first tuples of a stream are granted least, for their windows are empty: weighted and asc, which would
        pay for a refusal with a bias or a missed outlier, wait until the grant has grown.
        """
        if self.waiting is not None:
            return self.waiting if self.pace.is_replay or self.method == "nile" else 0
        if self.method == "nile" and self.preference != "desc":
            return 1 << 16
        return 1024 if self.pace.is_replay or self.method == "nile" else 0

    @property
    def is_exact(self) -> bool:
        """Whether the budget buys the plain probe: a fraction of 1 or more, no replay, nothing to forget."""
        return (
            self.method == "nile"
            and self.budget.fraction is not None
            and self.budget.fraction >= 1.0
            and not self.pace.is_replay
            and not self.spec.forgetting
            and not self.blind
        )

    @property
    def _draws_outputs(self) -> bool:
        """Whether so many outputs are drawn: of what is played back all at once."""
        return self.budget.unit == "outputs" and self.preference == "weighted"

    def unplanned(self) -> str:
        """What keeps a plan from being run by a strategy, in words; "": nothing."""
        hindrances = {
            f"method {self.method!r}": self.method != "nile",
            f"output {self.output!r}": self.output != "pairs",
            f"replay {self.pace.replay!r}": self.pace.is_replay and not self._draws_outputs,
            "forgetting": self.spec.forgetting,
            f"a budget of {self.budget}": self.budget.unit == "share",
            "estimates that are read as 0": self.blind,
        }
        return next((words for words, holds in hindrances.items() if holds), "")
