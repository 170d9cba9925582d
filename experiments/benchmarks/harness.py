"""How Nile measures speed: contestants take turns in one process, and only ratios are believed.

Absolute times belong to one machine and one minute; a ratio of two runs made one after the other survives
both.  So every round gives each contestant one turn, in an order that rotates from round to round, ratios
are taken within a round, and the median over rounds is reported with its spread.  A turn of a fast
contestant repeats its work, so that turns are long enough for the clock and for the caches to settle.
The clock counts CPU time of all threads, which a neighbour on the same cores disturbs less than wall time.
"""

from __future__ import annotations

import gc
import multiprocessing
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from multiprocessing.connection import Connection
from statistics import median
from typing import Any

from nile.summaries.errors import ConfigError

__all__ = [
    "Bar",
    "Benchmark",
    "Contestant",
    "Measure",
    "Result",
    "Timing",
    "benchmark",
    "beside",
    "names",
    "race",
    "run",
]

ROUNDS = 7
_LEAST_ROUNDS = 5
_TURN_NS = 50_000_000
_MOST_PASSES = 1_000


@dataclass(frozen=True, slots=True)
class Contestant:
    """One way to do the work.  run: does all of it once; name: as the report prints it."""

    name: str
    run: Callable[[], object]


@dataclass(frozen=True, slots=True)
class Bar:
    """What is asked of the first contestant: to be at least `at_least` times as fast as `opponent`."""

    opponent: str
    at_least: float


@dataclass(frozen=True, slots=True)
class Timing:
    """CPU seconds a pass of the work took one contestant in each round, and the median round by unit of work.

    passes: how often a turn repeated the work.
    """

    contestant: str
    passes: int
    seconds: tuple[float, ...]
    median: float
    per_unit_ns: float
    per_second: float


@dataclass(frozen=True, slots=True)
class Measure:
    """A figure: `value` in `unit`, and the bar it is held to (None: it is reported only).

    most: whether the bar is the most that is allowed, rather than the least; low, high: what rounds or seeds gave;
    about: how it was measured.
    """

    name: str
    value: float
    unit: str = ""
    bar: float | None = None
    most: bool = False
    low: float | None = None
    high: float | None = None
    about: str = ""

    @classmethod
    def of(cls, name: str, rounds: Sequence[float], unit: str, bar: float | None, **how: Any) -> Measure:
        """The median of some rounds, with the least and the most of them.  how: `most` and `about`."""
        return cls(name, median(rounds), unit, bar, low=min(rounds), high=max(rounds), **how)

    @property
    def met(self) -> bool | None:
        """Whether the bar is reached; None without one."""
        if self.bar is None:
            return None
        return self.value <= self.bar if self.most else self.value >= self.bar

    def as_dict(self) -> dict[str, Any]:
        """The figure as JSON values."""
        return {**asdict(self), "met": self.met}

    def text(self) -> str:
        """The figure as a person reads it."""
        unit = f" {self.unit}" if self.unit else ""
        told = f"{self.name}: {self.value:.4g}{unit}"
        if self.low is not None and self.high is not None:
            told += f" ({self.low:.4g} to {self.high:.4g})"
        if self.bar is not None:
            side = "at most" if self.most else "at least"
            told += f"; bar {side} {self.bar:g}: {'reached' if self.met else 'NOT reached'}"
        return f"{told} ({self.about})" if self.about else told


@dataclass(frozen=True, slots=True)
class Result:
    """What one benchmark measured.

    work: units of work in a run, such as tuples; measures: figures that can be held to bars and compared with those
    of another run; figures: what else is worth reading; rows: a table, for machines; brief: measured over less than
    by its own name.
    """

    name: str
    title: str
    unit: str
    work: int
    timings: tuple[Timing, ...]
    measures: tuple[Measure, ...]
    notes: tuple[str, ...] = ()
    figures: dict[str, Any] = field(default_factory=dict)
    rows: tuple[dict[str, Any], ...] = ()
    brief: bool = False

    def as_dict(self) -> dict[str, Any]:
        """The result as JSON values."""
        return {**asdict(self), "measures": [measure.as_dict() for measure in self.measures]}

    def text(self) -> str:
        """The result as a person reads it: one line a contestant, one a ratio with its bar beside it."""
        less = ", the brief form" if self.brief else ""
        lines = [f"{self.name}: {self.title} ({self.work:,} {self.unit} a run{less})"]
        width = max((len(timing.contestant) for timing in self.timings), default=0)
        lines += [
            f"  {timing.contestant:<{width}}  {timing.per_unit_ns:10.2f} ns each  {timing.per_second:14,.0f} a second"
            for timing in self.timings
        ]
        lines += [f"  {measure.text()}" for measure in self.measures]
        lines += [f"  {name}: {value}" for name, value in self.figures.items()]
        lines += [f"  note: {note}" for note in self.notes]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A named benchmark: `body` measures and returns its result; `brief`: the same over less, where it takes long."""

    name: str
    title: str
    body: Callable[[], Result]
    brief: Callable[[], Result] | None = None


_REGISTRY: dict[str, Benchmark] = {}


def benchmark(
    name: str, title: str, *, brief: Callable[[], Result] | None = None
) -> Callable[[Callable[[], Result]], Callable[[], Result]]:
    """Register the decorated function as the benchmark `name`; its module is imported by the package.

    brief: what "all" runs instead of one that takes longer than a few minutes: fewer seeds or rows, the same bars.
    """

    def register(body: Callable[[], Result]) -> Callable[[], Result]:
        _REGISTRY[name] = Benchmark(name, title, body, brief)
        return body

    return register


def names() -> dict[str, str]:
    """Every benchmark and its title, in the order of their names."""
    return {name: _REGISTRY[name].title for name in sorted(_REGISTRY)}


def run(
    wanted: Iterable[str], on_start: Callable[[str, str], object] | None = None, *, brief: bool = False
) -> list[Result]:
    """Run benchmarks by name, in the order given; "all" stands for every one, "accuracy" for all "accuracy-...".

    By "all", or when `brief` is asked for, those that take long are run in their brief form.

    on_start: called with name and title before each, for progress.  Minutes at most each; a first run
    compiles kernels before it measures.  Raises ConfigError for an unknown name, before any has run.
    """
    chosen: list[tuple[Benchmark, bool]] = []
    for name in wanted:
        if name == "all":
            chosen += [(_REGISTRY[each], True) for each in sorted(_REGISTRY)]
        elif name in _REGISTRY:
            chosen.append((_REGISTRY[name], brief))
        elif family := [each for each in sorted(_REGISTRY) if each.startswith(f"{name}-")]:
            chosen += [(_REGISTRY[each], brief) for each in family]
        else:
            raise ConfigError(
                f"bench: needed one of {', '.join(sorted(_REGISTRY))} or all; got {name!r}; "
                "`nile bench list` shows them"
            )
    results = []
    for each, briefly in chosen:
        if on_start is not None:
            on_start(each.name, each.title)
        if briefly and each.brief is not None:
            results.append(replace(each.brief(), brief=True))
        else:
            results.append(each.body())
    return results


def race(
    name: str,
    title: str,
    contestants: Sequence[Contestant],
    *,
    work: int,
    unit: str,
    bars: Sequence[Bar] = (),
    notes: Sequence[str] = (),
    rounds: int = ROUNDS,
    clock: Callable[[], int] = time.process_time_ns,
) -> Result:
    """Let contestants take turns and compare the first with each other one.

    Each runs twice unmeasured (compilation and caches, then to see how many passes fill a turn of 50 ms),
    then takes `rounds` turns; the collector of garbage waits outside.  Returns ratios of the first
    contestant against every other, bars beside them.
    Raises ConfigError for fewer than 2 contestants or 5 rounds, or a bar for someone who does not run.
    """
    known = [contestant.name for contestant in contestants]
    if len(known) < 2 or len(set(known)) < len(known) or rounds < _LEAST_ROUNDS:
        raise ConfigError(
            f"bench {name}: needed two contestants of different names and {_LEAST_ROUNDS} rounds or more; "
            f"got {known} and {rounds}; add what is missing"
        )
    asked = {bar.opponent: bar.at_least for bar in bars}
    for opponent in asked:
        if opponent not in known[1:]:
            raise ConfigError(f"bench {name}: needed bars against one of {known[1:]}; got {opponent!r}; let it run too")
    passes: dict[str, int] = {}
    for contestant in contestants:
        contestant.run()
        once = _turn(contestant.run, 1, clock)
        passes[contestant.name] = min(max(round(_TURN_NS / 1e9 / once), 1), _MOST_PASSES)
    seconds: dict[str, list[float]] = {each: [] for each in known}
    for turn in range(rounds):
        cycle, start = divmod(turn, len(contestants))
        order = [*contestants[start:], *contestants[:start]]
        for contestant in reversed(order) if cycle % 2 else order:  # or each would mostly come after the same one
            seconds[contestant.name].append(_turn(contestant.run, passes[contestant.name], clock))
    subject = known[0]
    return Result(
        name,
        title,
        unit,
        work,
        tuple(_timing(each, passes[each], seconds[each], work) for each in known),
        tuple(_ratio(subject, each, seconds, asked.get(each)) for each in known[1:]),
        tuple(notes),
    )


def _turn(work: Callable[[], object], passes: int, clock: Callable[[], int]) -> float:
    """CPU seconds one pass took, over `passes` of them."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        begin = clock()
        for _ in range(passes):
            work()
        return max(clock() - begin, 1) / passes / 1e9
    finally:
        if collecting:
            gc.enable()


def _timing(contestant: str, passes: int, seconds: list[float], work: int) -> Timing:
    middle = median(seconds)
    return Timing(contestant, passes, tuple(seconds), middle, middle / work * 1e9, work / middle)


def _ratio(subject: str, opponent: str, seconds: dict[str, list[float]], bar: float | None) -> Measure:
    ratios = [theirs / ours for ours, theirs in zip(seconds[subject], seconds[opponent], strict=True)]
    name = f"{subject}, against {opponent}"
    return Measure.of(name, ratios, "times as fast", bar)


@contextmanager
def beside(target: Callable[..., object], *given: Any) -> Iterator[Connection]:
    """A process of its own that runs `target(*given, one end of a pipe)`: the other end; waits for it to have ended."""
    spawned = multiprocessing.get_context("spawn")
    mine, its = spawned.Pipe()
    process = spawned.Process(target=target, args=(*given, its))
    process.start()
    its.close()
    try:
        yield mine
    finally:
        mine.close()
        process.join()
