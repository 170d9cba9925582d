"""What one experiment is: two streams, a window, and the grid of runs over them, as a TOML file says it.

The frozen models below are what the file is checked against and what the runner sees.  Defaults live here and nowhere
else; the description of a field says what it needs, for messages.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError

from nile.base.durations import parse_duration
from nile.experiments.run.fields import Finding, Table, Text, findings, one_of, one_of_names, shown, told
from nile.experiments.run.toml_file import read_toml
from nile.operators.common.plan import METHODS, SCANNING
from nile.preferences.budget import BUDGET_UNITS, Budget
from nile.preferences.clock import Bursts, Pace
from nile.pyramid.grid.spec import CONFIDENCES, STRUCTURES, SummarySpec
from nile.summaries.errors import BudgetError, ConfigError, MemoryRefused, SourceMissing

__all__ = [
    "EXAMPLE",
    "SYNTHETIC",
    "BurstsConfig",
    "RunConfig",
    "StreamConfig",
    "SummaryConfig",
    "SyntheticData",
    "build_config",
    "load_config",
]

DEFAULT_GRANULARITY = 3_600_000_000_000
"""Length of G1 in ns when there is neither a window nor a granularity: one hour."""

SYNTHETIC = "synthetic"
"""The source that is drawn, not read."""

PREFERENCES = ("desc", "weighted", "asc")
GUIDES = ("countsketch", "directory")
OUTPUTS = ("pairs", "ranges")
COSTS = ("engine", "memory")
REPLAYS = ("none", "exponential", "data")
SKETCHES = ("countsketch",)


# --- kinds of values --------------------------------------------------------------------------------------


def _many(value: object) -> object:
    """A list as a tuple, one value alone as a tuple of it."""
    return tuple(value) if isinstance(value, list | tuple) else (value,)


def _distinct(values: tuple[Any, ...]) -> tuple[Any, ...]:
    for i, value in enumerate(values):
        if value in values[:i]:
            raise ConfigError(f"needed each value once; got {value!r} twice")
    return values


def _duration(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ConfigError(f'needed a duration, such as 3600 or "1 hour"; got {shown(value)}')
    try:
        return parse_duration(value, where="duration")
    except ConfigError as error:
        raise ConfigError(str(error).removeprefix("duration: ")) from None


def _window(value: object) -> object:
    return None if value in (None, "none") else _duration(value)


def _power(value: int) -> int:
    if value & (value - 1):
        raise ConfigError(f"needed a power of two; got {value}; try {1 << value.bit_length()}")
    return value


_ONCE = (BeforeValidator(_many), AfterValidator(_distinct), Field(min_length=1))

Count = Annotated[int, Field(ge=1, le=2**31 - 1)]
Natural = Annotated[int, Field(ge=0, le=2**63 - 1)]
Duration = Annotated[int, BeforeValidator(_duration)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Structure = Annotated[str, one_of(STRUCTURES)]


# --- the tables of the file -------------------------------------------------------------------------------


class SyntheticData(Table):
    """The seeded synthetic retail stream that both sides may be drawn from."""

    seed: Natural = Field(0, description="a whole number >= 0")
    tuples: Count = Field(120_000, description="a whole number >= 1")
    items: Count = Field(2_000, description="a whole number >= 1")


class StreamConfig(Table):
    """One side of the join.  source: the path of a file, or SYNTHETIC.  time, key: columns.  where: SQL."""

    source: Text = Field(description='a path to a .parquet or .csv file, or "synthetic"')
    time: Text = Field(description='the name of the time column, such as time = "ts"')
    key: Text = Field(description='the name of the join column, such as key = "item_id"')
    where: Text | None = Field(None, description='a condition in SQL, such as "vstore = 0"')


class BurstsConfig(Table):
    """`nile.preferences.clock.Bursts` as a person writes it."""

    factor: Annotated[float, Field(gt=1, allow_inf_nan=False)] = Field(10.0, description="a number above 1")
    share: Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)] = Field(0.5, description="a share in (0, 1)")
    tuples: Count = Field(1_000, description="a whole number >= 1")


class SummaryConfig(Table):
    """How each stream is summarised: `pyramid.SummarySpec` as a person writes it.  Durations in ns.

    granularity: length of G1, None for a quarter of the window (one hour without a window).  max_length: of
    a time zone, None for a quarter of the granularity.  sketch_rows, sketch_columns: of one cell's count
    sketch.
    """

    granularity: Duration | None = Field(None, description="a duration")
    rate: Annotated[int, Field(ge=2, le=4096)] = Field(4, description="a whole number from 2 to 4096")
    depth: Annotated[int, Field(ge=1, le=32)] = Field(2, description="a whole number from 1 to 32")
    structure: Structure = Field("T4", description=one_of_names(STRUCTURES))
    buckets: Annotated[int, Field(ge=1, le=4096), AfterValidator(_power)] = Field(
        16, description="a power of two from 1 to 4096"
    )
    sketch: Annotated[str, one_of(SKETCHES)] = Field("countsketch", description=one_of_names(SKETCHES))
    confidence: Annotated[str, one_of(CONFIDENCES)] = Field("two-window", description=one_of_names(CONFIDENCES))
    threshold: Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)] = Field(
        0.02, description="a confidence in [0, 1)"
    )
    max_length: Duration | None = Field(None, description="a duration")
    sketch_rows: Annotated[int, Field(ge=1, le=15)] = Field(3, description="a whole number from 1 to 15")
    sketch_columns: Annotated[int, Field(ge=1, le=2**20), AfterValidator(_power)] = Field(
        32, description="a power of two from 1 to 1048576"
    )

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


class RunConfig(Table):
    """A grid of runs: every method x guide x preference x budget x seed x cost table, on one pair of streams.

    window in ns, None for the whole stream.  budgets: amounts of budget_unit, one of Budget's.  replay_mean in
    ns and bursts are for replay = "exponential" alone; speed, for budgets of a share alone, is how many times
    faster than its own pace the input is played back.  structures: for method "paper", a run each; empty: the
    summary's own.
    """

    left: StreamConfig = Field(description="a table [left] with source, time, key and, if wanted, where")
    right: StreamConfig = Field(description="a table [right] with source, time, key and, if wanted, where")
    window: Annotated[int | None, BeforeValidator(_window)] = Field(None, description="a duration")
    budgets: Annotated[tuple[Positive, ...], *_ONCE] = Field(
        (0.05, 0.1, 0.2, 0.5, 1.0), description="finite fractions > 0, such as [0.1, 0.5]"
    )
    budget_unit: Annotated[str, one_of(BUDGET_UNITS)] = Field("fraction", description=one_of_names(BUDGET_UNITS))
    preferences: Annotated[tuple[Annotated[str, one_of(PREFERENCES)], ...], *_ONCE] = Field(
        PREFERENCES, description=one_of_names(PREFERENCES)
    )
    methods: Annotated[tuple[Annotated[str, one_of(METHODS)], ...], *_ONCE] = Field(
        ("nile", "hash-drop"), description=one_of_names(METHODS)
    )
    seeds: Annotated[tuple[Natural, ...], *_ONCE] = Field((0,), description="whole numbers >= 0")
    guides: Annotated[tuple[Annotated[str, one_of(GUIDES)], ...], *_ONCE] = Field(
        GUIDES, description=one_of_names(GUIDES)
    )
    fade: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] = Field(1.0, description="one number in (0, 1]")
    output: Annotated[str, one_of(OUTPUTS)] = Field("pairs", description=one_of_names(OUTPUTS))
    costs: Annotated[tuple[Annotated[str, one_of(COSTS)], ...], *_ONCE] = Field(
        ("engine",), description=one_of_names(COSTS)
    )
    replay: Annotated[str, one_of(REPLAYS)] = Field("none", description=one_of_names(REPLAYS))
    replay_mean: Duration = Field(100_000_000, description="a duration")
    speed: Positive = Field(1.0, description="a number > 0")
    structures: Annotated[tuple[Structure, ...], *_ONCE] = Field((), description=one_of_names(STRUCTURES))
    outlier_cap: Count = Field(4, description="a whole number >= 1")
    forgetting: bool = Field(False, description="true or false")
    batch_rows: Count = Field(65_536, description="a whole number >= 1")
    bursts: BurstsConfig | None = Field(None, description="a table [bursts]")
    synthetic: SyntheticData = Field(SyntheticData(), description="a table [synthetic]")
    summary: SummaryConfig = Field(SummaryConfig(), description="a table [summary]")

    @property
    def pace(self) -> Pace:
        """How the input is played back.  Raises ConfigError for bursts without exponential gaps."""
        bursts = None if self.bursts is None else Bursts(**self.bursts.model_dump())
        return Pace(self.replay, self.replay_mean, bursts)

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
    """A config from values already read, checked as a file's are.  A value of None counts as not set.

    where: what to call the table in messages.  folder: what relative sources are relative to (default: the
    working directory).  text: the TOML it came from, for line numbers.  Raises as `load_config`.
    """
    given = _set(table)
    for side in ("left", "right"):
        source = given[side].get("source") if isinstance(given.get(side), dict) else None
        if isinstance(source, str) and source not in ("", SYNTHETIC):
            given[side]["source"] = str((folder or Path()) / os.path.expanduser(source))
    try:
        run = RunConfig.model_validate(given)
    except ValidationError as error:
        raise ConfigError(told(findings(error, RunConfig, given), where, text)) from None
    for mistake, path in _together(run, "relative paths start at the folder of the config" if text else None):
        raise type(mistake)(told([Finding(path, str(mistake))], where, text))
    return run


def _together(run: RunConfig, relative: str | None) -> Iterator[tuple[Exception, tuple[str, ...]]]:
    """What only several keys together, or the machine, can get wrong, and the key to name.  relative: advice."""
    if "synthetic" in run.model_fields_set and SYNTHETIC not in (run.left.source, run.right.source):
        needed = 'needed a side with source = "synthetic", got none; set one, or take this table out'
        yield ConfigError(needed), ("synthetic",)
    scanning = [name for name in run.methods if name in SCANNING]
    if scanning and run.output == "ranges":
        needed = f"needed methods that keep position lists, for ranges; got {scanning[0]!r}"
        yield ConfigError(f"{needed}; take it out, or ask for pairs"), ("methods",)
    for side, stream in (("left", run.left), ("right", run.right)):
        if stream.source != SYNTHETIC and not os.path.exists(stream.source):  # False, not an error, for any odd name
            needed = f"needed an existing file; got {stream.source!r}"
            yield SourceMissing(f"{needed}; {relative or 'name an existing file'}"), (side, "source")
    try:
        _check_budgets(run)
    except (ConfigError, BudgetError) as error:
        key = "bursts" if str(error).startswith("bursts") else "budgets"
        yield type(error)(str(error).removeprefix(f"{key}: ").removeprefix("budget: ")), (key,)
    try:
        run.summary.spec(run.window, forgetting=run.forgetting)
    except (ConfigError, MemoryRefused) as error:
        yield error, ("summary",)


def _check_budgets(run: RunConfig) -> None:
    """What only budgets, their unit and the pace together can get wrong."""
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


def _set(table: Mapping[str, Any]) -> dict[str, Any]:
    """The table without what is None, in its sub-tables too."""
    return {
        name: _set(value) if isinstance(value, Mapping) else value for name, value in table.items() if value is not None
    }


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
