"""What one experiment is: two streams, a window, and the grid of runs over them.

The file is TOML; `experiments.run.config_edge` checks it and builds the frozen dataclasses below, which are all
that the runner sees.  Defaults live here and nowhere else.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from experiments.run.config_edge import Finding, checked
from experiments.run.toml_file import read_toml
from experiments.run.toml_lines import line_of
from preferences.budget import Budget
from preferences.clock import Bursts, Pace
from pyramid.grid.spec import SummarySpec
from summaries.errors import BudgetError, ConfigError, MemoryRefused, SourceMissing

__all__ = [
    "EXAMPLE",
    "RunConfig",
    "StreamConfig",
    "SummaryConfig",
    "SyntheticData",
    "build_config",
    "load_config",
]

DEFAULT_GRANULARITY = 3_600_000_000_000
"""Length of G1 in ns when there is neither a window nor a granularity: one hour."""


@dataclass(frozen=True, slots=True)
class SyntheticData:
    """The seeded synthetic retail stream that both sides may be drawn from."""

    seed: int = 0
    tuples: int = 120_000
    items: int = 2_000


@dataclass(frozen=True, slots=True)
class StreamConfig:
    """One side of the join.  source: a file or synthetic data.  time, key: columns.  where: SQL."""

    source: Path | SyntheticData
    time: str
    key: str
    where: str | None = None


@dataclass(frozen=True, slots=True)
class SummaryConfig:
    """How each stream is summarised: `pyramid.SummarySpec` as a person writes it.  Durations in ns.

    granularity: length of G1, None for a quarter of the window (one hour without a window).  max_length: of
    a time zone, None for a quarter of the granularity.  sketch_rows, sketch_columns: of one cell's count
    sketch.
    """

    granularity: int | None = None
    rate: int = 4
    depth: int = 2
    structure: str = "T4"
    buckets: int = 16
    sketch: str = "countsketch"
    confidence: str = "two-window"
    threshold: float = 0.02
    max_length: int | None = None
    sketch_rows: int = 3
    sketch_columns: int = 32

    def spec(self, window: int | None, *, forgetting: bool = False, seed: int = 0) -> SummarySpec:
        """What the pyramid is asked to build under this window.  Raises ConfigError, MemoryRefused."""
        quarter = DEFAULT_GRANULARITY if window is None else max(window // 4, 1)
        return SummarySpec(
            granularity=quarter if self.granularity is None else self.granularity,
            rate=self.rate,
            depth=self.depth,
            structure=self.structure,
            buckets=self.buckets,
            rows=self.sketch_rows,
            columns=self.sketch_columns,
            confidence=self.confidence,
            threshold=self.threshold,
            max_length=self.max_length,
            forgetting=forgetting,
            seed=seed,
        )


@dataclass(frozen=True, slots=True)
class RunConfig:
    """A grid of runs: every method x guide x preference x budget x seed x cost table, on one pair of streams.

    window in ns, None for the whole stream.  budgets: amounts of budget_unit, one of Budget's.  replay_mean in
    ns and bursts are for replay = "exponential" alone; speed, for budgets of a share alone, is how many times
    faster than its own pace the input is played back.  structures: for method "paper", a run each; empty: the
    summary's own.
    """

    left: StreamConfig
    right: StreamConfig
    window: int | None = None
    budgets: tuple[float, ...] = (0.05, 0.1, 0.2, 0.5, 1.0)
    budget_unit: str = "fraction"
    preferences: tuple[str, ...] = ("desc", "weighted", "asc")
    methods: tuple[str, ...] = ("nile", "hash-drop")
    seeds: tuple[int, ...] = (0,)
    guides: tuple[str, ...] = ("countsketch", "directory")
    fade: float = 1.0
    output: str = "pairs"
    costs: tuple[str, ...] = ("engine",)
    replay: str = "none"
    replay_mean: int = 100_000_000
    bursts: Bursts | None = None
    speed: float = 1.0
    structures: tuple[str, ...] = ()
    outlier_cap: int = 4
    forgetting: bool = False
    batch_rows: int = 65_536
    summary: SummaryConfig = field(default_factory=SummaryConfig)

    @property
    def pace(self) -> Pace:
        """How the input is played back.  Raises ConfigError for bursts without exponential gaps."""
        return Pace(self.replay, self.replay_mean, self.bursts)

    def budget(self, amount: float) -> Budget:
        """One of `budgets` as a Budget.  Raises BudgetError for an amount outside its unit's range."""
        return Budget.of(self.budget_unit, amount)


def load_config(path: Path | str) -> RunConfig:
    """Read a TOML file.  Relative sources are relative to its folder.

    Raises SourceMissing when the file or a source it names is not there, ConfigError for everything else,
    with one line a mistake: file, line, key, what was needed, what came, the nearest known name.
    """
    file = Path(path)
    table, text = read_toml(file, advice="`nile run --example` prints one to start from")
    return build_config(table, where=str(file), folder=file.parent, text=text)


def build_config(
    table: Mapping[str, Any], *, where: str, folder: Path | None = None, text: str | None = None
) -> RunConfig:
    """A config from values already read, checked as a file's are.

    where: what to call the table in messages.  folder: what relative sources are relative to (default: the
    working directory).  text: the TOML it came from, for line numbers.  Raises as `load_config`.
    """
    values, findings = checked(table)
    if findings:
        told = sorted((_line(finding, text) or 0, _told(finding, where, text)) for finding in findings)
        raise ConfigError("\n".join(message for _, message in told))
    synthetic = SyntheticData(**values.pop("synthetic", {}))
    sides: dict[str, StreamConfig] = {}
    for side in ("left", "right"):
        stream = values.pop(side)
        source = synthetic if stream["source"] == "synthetic" else _file(stream["source"], folder)
        if isinstance(source, Path) and not os.path.exists(source):  # False, not an error, for any odd name
            needed = f"needed an existing file; got {str(source)!r}"
            advice = "relative paths start at the folder of the config" if text else "name an existing file"
            raise SourceMissing(_told(Finding((side, "source"), f"{needed}; {advice}"), where, text))
        sides[side] = StreamConfig(**{**stream, "source": source})
    summary = SummaryConfig(**values.pop("summary", {}))
    if "bursts" in values:
        values["bursts"] = Bursts(**values["bursts"])
    run = RunConfig(left=sides["left"], right=sides["right"], summary=summary, **values)
    _check_budgets(run, where, text)
    try:
        run.summary.spec(run.window, forgetting=run.forgetting)
    except (ConfigError, MemoryRefused) as error:
        raise type(error)(_told(Finding(("summary",), str(error)), where, text)) from None
    return run


def _check_budgets(run: RunConfig, where: str, text: str | None) -> None:
    """What only budgets, their unit and the pace together can get wrong."""
    try:
        run.pace  # noqa: B018
        for amount in run.budgets:
            run.budget(amount)
        if run.budget_unit == "share" and not run.pace.is_replay:
            raise BudgetError('needed replay = "data" or "exponential" for shares of a core; got "none"; set one')
        if run.budget_unit != "fraction" and "shed-uniform" in run.methods:
            raise BudgetError(
                "needed budgets that are fractions for method 'shed-uniform', which works out beforehand how many "
                f"tuples to shed; got {run.budget_unit}; take one of them out"
            )
    except (ConfigError, BudgetError) as error:
        key = "bursts" if str(error).startswith("bursts") else "budgets"
        message = str(error).removeprefix(f"{key}: ").removeprefix("budget: ")
        raise type(error)(_told(Finding((key,), message), where, text)) from None


def _told(finding: Finding, where: str, text: str | None) -> str:
    line = _line(finding, text)
    return f"{where}:{line}: {finding}" if line else f"{where}: {finding}"


def _line(finding: Finding, text: str | None) -> int | None:
    return None if text is None else line_of(text, [str(name) for name in finding.path])


def _file(name: str, folder: Path | None) -> Path:
    return (folder or Path()) / os.path.expanduser(name)


EXAMPLE = """\
# One experiment: two streams, joined on equal keys inside a window, under several budgets.
# Run it:  nile run this-file.toml --out results
# Durations are numbers of seconds, or text such as "6 hours", "10 min", "100 ms".
# One value may stand where a list does.  A line that is commented out shows its default.

window = "1 hour"      # join tuples at most this far apart in time; leave it out for no window
budgets = [0.05, 0.1, 0.2, 0.5, 1.0]       # fractions of what the exact join costs
# budget_unit = "fraction"                 # or "outputs", or by the wall clock, which no other run repeats:
#                                          # "seconds" of CPU, "seconds_per_tuple", "share" of a core
preferences = ["desc", "weighted", "asc"]  # most matches first, a faithful sample, rare things first
methods = ["nile", "hash-drop"]            # hash-drop, the opponent, drops what it cannot finish
seeds = [0]
guides = ["countsketch", "directory"]      # what points nile at matches: sketches, or exact counts per key
fade = 1.0             # in (0, 1]: what a granularity is worth against the next younger one
output = "pairs"       # or "ranges": one output for many pairs
costs = "engine"       # price list of the cost clock; or "memory"; or ["engine", "memory"] for both
replay = "none"        # or "exponential" or "data": pace the budget by time, and let unused credit expire
# replay_mean = "100 ms"                   # mean gap under replay = "exponential"
# speed = 1.0          # how much faster than that a run under a share of a core is played back
# structures = ["T4"]                      # for method "paper", a run each; default: what [summary] says
outlier_cap = 4        # an outlier's key has at most this many tuples in the window
forgetting = false     # true: drop what leaves the oldest granularity
# batch_rows = 65536   # how many rows are read at once; changes no result

[left]
source = "synthetic"   # or a .parquet or .csv file, relative to the folder of this one
time = "ts"
key = "item_id"
where = "vstore = 0"   # optional: a condition in SQL

[right]
source = "synthetic"
time = "ts"
key = "item_id"
where = "vstore = 1"

[synthetic]            # what source = "synthetic" draws
seed = 0
tuples = 120000
items = 2000

#   [bursts]           # under replay = "exponential": busy and quiet phases in turn, the mean gap kept
#   factor = 10.0      # how many times as fast as the mean a burst is
#   share = 0.5        # of the tuples, those that come in bursts
#   tuples = 1000      # in one burst

[summary]
# granularity = "15 min"     # length of the youngest granularity; default: a quarter of the window
rate = 4                     # zones in each older granularity: COLLAPSE (rate, depth)
depth = 2                    # granularities
structure = "T4"             # T1 none, T2 time zones, T3 value x fixed zones, T4 value x self-adjusting zones
buckets = 16                 # value buckets; a power of two
sketch = "countsketch"
confidence = "two-window"    # what ends a time zone; or "variance"
threshold = 0.02             # ... when it falls below this; 0 never does
# max_length = "225 s"       # of a time zone; default: a quarter of the granularity
sketch_rows = 3
sketch_columns = 32          # a power of two
"""
