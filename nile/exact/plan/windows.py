"""The windows of streams: which tuples are valid at an instant.  Source: negative tuples, section 2.1; CQL, 2.1."""

from __future__ import annotations

from dataclasses import dataclass

from nile.summaries.errors import ConfigError

__all__ = ["Range", "Rows", "Slide", "Unbounded", "Window"]


@dataclass(frozen=True, slots=True)
class Unbounded:
    """Every tuple so far."""


@dataclass(frozen=True, slots=True)
class Range:
    """The tuples of the last `ns` nanoseconds: one of time ts is in the window at T while ts <= T <= ts + ns.

    0: NOW, at its own instant alone.  Raises ConfigError below it.
    """

    ns: int

    def __post_init__(self) -> None:
        if isinstance(self.ns, bool) or not isinstance(self.ns, int) or self.ns < 0:
            raise ConfigError(f"window: needed a duration of 0 ns or more; got {self.ns!r}; write Range(1_000_000_000)")


@dataclass(frozen=True, slots=True)
class Rows:
    """The last `n` tuples of the stream, whatever their age: at T, the last n of those with ts <= T.

    by: columns; then the last n of those that are equal in them.  Raises ConfigError unless n is above 0.
    """

    n: int
    by: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.n, bool) or not isinstance(self.n, int) or self.n <= 0:
            raise ConfigError(f"window: needed a number of rows above 0; got {self.n!r}; write Rows(100)")


@dataclass(frozen=True, slots=True)
class Slide:
    """A Range of `ns` that moves in steps: at T, tuples with t - ns <= ts <= t, t the last multiple of `step` ns.

    Raises ConfigError unless both are above 0.
    """

    ns: int
    step: int

    def __post_init__(self) -> None:
        for each in (self.ns, self.step):
            if isinstance(each, bool) or not isinstance(each, int) or each <= 0:
                raise ConfigError(f"window: needed durations above 0 ns; got {each!r}; write Slide(10**9, 10**8)")


Window = Unbounded | Range | Rows | Slide
