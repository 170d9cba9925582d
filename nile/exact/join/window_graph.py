"""The graph of window constraints: which streams a window join connects, and how closely.

A node is a stream, an edge a bound on the difference of two timestamps.  Everything an algorithm needs is settled
here, when the query is planned: the form, the bound that follows for pairs the query left open (a shortest path),
and how long a tuple may still find partners.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from nile.summaries.errors import ConfigError

__all__ = ["FORMS", "MOST_STREAMS", "WindowGraph"]

Array = np.ndarray[Any, Any]
FORMS = ("binary", "uniform clique", "clique", "path", "graph", "directed path")
MOST_STREAMS = 16
UNBOUNDED = np.iinfo(np.int64).max


@dataclass(frozen=True)
class WindowGraph:
    """n streams and their window constraints: |ts_i - ts_j| <= ns for every entry (i, j): ns of `constraints`.

    directed: the constraints run along one path, and a combination counts when it follows the path in the order
    written (0 <= ts_j - ts_i <= ns for every entry) or in the reverse order (0 <= ts_i - ts_j <= ns for every entry).
    names: how messages call the streams; by default stream 0, stream 1 and so on.
    Raises ConfigError for fewer than 2 or more than 16 streams, a window that is no whole number of nanoseconds above
    0, a pair named twice (for DWINDOW also both ways), a stream tied to itself, streams that no chain of windows ties
    together, and directed constraints that form no simple path.
    Source: window joins (TR 02-010), sections 1 and 5; a window without bound has no place here.
    """

    streams: int
    constraints: Mapping[tuple[int, int], int]
    is_directed: bool = False
    names: tuple[str, ...] = ()

    @classmethod
    def uniform(cls, streams: int, window: int, names: Sequence[str] = ()) -> WindowGraph:
        """Every two streams within `window` ns: the binary join and the uniform clique."""
        _check_streams(streams, tuple(names))
        return cls(
            streams, {(i, j): window for i in range(streams) for j in range(i + 1, streams)}, False, tuple(names)
        )

    @classmethod
    def whole(cls, ts: Sequence[Array]) -> WindowGraph | None:
        """One window that holds all tuples of the streams; None where they lie 2**62 ns (146 years) apart and more.

        ts: int64 [n] ns per stream, not decreasing.
        """
        ends = [int(end) for each in ts if each.shape[0] for end in (each[0], each[-1])]
        span = max(ends) - min(ends) if ends else 0
        return cls.uniform(len(ts), max(1, span)) if span < 1 << 62 else None

    @classmethod
    def of(cls, streams: int, windows: Mapping[tuple[int, int], int], names: Sequence[str] = ()) -> WindowGraph:
        """Named pairs within their own windows: clique, path or graph; (i, j) and (j, i) are the same pair."""
        return cls(streams, dict(windows), False, tuple(names))

    @classmethod
    def directed(cls, streams: int, windows: Iterable[tuple[int, int, int]], names: Sequence[str] = ()) -> WindowGraph:
        """DWINDOW: (i, j, ns) for each step of one path, all in the direction of travel, in any order."""
        steps: dict[tuple[int, int], int] = {}
        for i, j, window in windows:
            if (i, j) in steps:
                raise ConfigError(
                    f"window graph: needed one DWINDOW between two streams; got ({_name(names, i)}, {_name(names, j)}) "
                    "twice; keep the one you mean"
                )
            steps[i, j] = window
        return cls(streams, steps, True, tuple(names))

    def __post_init__(self) -> None:
        _check_streams(self.streams, self.names)
        seen: set[frozenset[int]] = set()
        for (i, j), window in self.constraints.items():
            pair = f"({self.name(i)}, {self.name(j)})"
            word = "DWINDOW" if self.is_directed else "WINDOW"
            for stream in (i, j):
                if not 0 <= stream < self.streams:
                    raise ConfigError(
                        f"window graph, {word} {pair}: needed streams 0 to {self.streams - 1}; got {stream}; "
                        "name streams of this join"
                    )
            if i == j:
                raise ConfigError(
                    f"window graph, {word} {pair}: needed two different streams; got {self.name(i)} twice; "
                    "register the stream under a second name to join it with itself"
                )
            if frozenset((i, j)) in seen:
                both = "both ways" if self.is_directed else "twice"
                raise ConfigError(
                    f"window graph: needed one {word} between two streams; got {pair} {both}; keep the one you mean"
                )
            seen.add(frozenset((i, j)))
            if isinstance(window, bool) or not isinstance(window, int | np.integer) or window < 0:
                raise ConfigError(
                    f"window graph, {word} {pair}: needed a window of whole nanoseconds, 0 or more; got {window!r}; "
                    "write 60_000_000_000 for a minute"
                )
            if window >= 1 << 62:
                raise ConfigError(
                    f"window graph, {word} {pair}: needed a window below 2**62 ns (146 years); got {window}; "
                    "write a shorter one"
                )
        if self.is_directed:
            self._check_path()
        self._check_connected()

    def _check_path(self) -> None:
        """A directed graph must be one simple path: every stream entered and left at most once, no cycle."""
        after: dict[int, int] = {}
        before: dict[int, int] = {}
        for i, j in self.constraints:
            for known, key, how in ((after, i, "leaves"), (before, j, "enters")):
                if key in known:
                    raise ConfigError(
                        f"window graph: needed DWINDOWs along one path; got two of which each {how} {self.name(key)}; "
                        "write a query for each path"
                    )
            after[i] = j
            before[j] = i
        for start in after:
            stream, walked = start, [self.name(start)]
            while stream in after:
                stream = after[stream]
                walked.append(self.name(stream))
                if stream == start:
                    raise ConfigError(
                        f"window graph: needed DWINDOWs along a path without a cycle; got {' -> '.join(walked)}; "
                        "leave one of them out"
                    )

    def _check_connected(self) -> None:
        reached = self._reached(0)
        if len(reached) < self.streams:
            left = [self.name(i) for i in range(self.streams) if i not in reached]
            some = ", ".join(self.name(i) for i in sorted(reached))
            raise ConfigError(
                f"window graph: needed windows that tie all {self.streams} streams together; got none between {some} "
                f"and {', '.join(left)}; add a WINDOW between a stream of each"
            )

    def _reached(self, start: int) -> list[int]:
        """Streams in the order a walk along the constraints from `start` meets them, nearest first."""
        neighbours = self._neighbours
        order = [start]
        for stream in order:
            order += [other for other in neighbours[stream] if other not in order]
        return order

    @cached_property
    def _neighbours(self) -> list[list[int]]:
        found: list[list[int]] = [[] for _ in range(self.streams)]
        for i, j in self.constraints:
            found[i].append(j)
            found[j].append(i)
        return [sorted(each) for each in found]

    def name(self, stream: int) -> str:
        """How messages call stream `stream`."""
        return _name(self.names, stream)

    @cached_property
    def form(self) -> str:
        """One of FORMS."""
        if self.is_directed:
            return "directed path"
        if self.streams == 2:
            return "binary"
        if len(self.constraints) == self.streams * (self.streams - 1) // 2:
            return "uniform clique" if self.is_uniform else "clique"
        degrees = [len(each) for each in self._neighbours]
        is_path = len(self.constraints) == self.streams - 1 and max(degrees) <= 2
        return "path" if is_path else "graph"

    @property
    def is_uniform(self) -> bool:
        """Whether every two streams are given the same undirected window."""
        pairs = self.streams * (self.streams - 1) // 2
        return not self.is_directed and len(self.constraints) == pairs and len(set(self.constraints.values())) == 1

    @cached_property
    def path(self) -> tuple[int, ...] | None:
        """The streams along a path, as a directed one is written; None for other forms."""
        if self.form == "directed path":
            entered = {j for _, j in self.constraints}
            return tuple(self._reached(next(i for i in range(self.streams) if i not in entered)))
        if self.form in ("path", "binary"):
            return tuple(self._reached(next(i for i in range(self.streams) if len(self._neighbours[i]) == 1)))
        return None

    @cached_property
    def given(self) -> Array:
        """The bound the query states on |ts_i - ts_j|: int64 [n, n] ns, UNBOUNDED where it states none, 0 for i = j."""
        bounds = np.full((self.streams, self.streams), UNBOUNDED, np.int64)
        for (i, j), window in self.constraints.items():
            bounds[i, j] = bounds[j, i] = window
        np.fill_diagonal(bounds, 0)
        return bounds

    @cached_property
    def completed(self) -> Array:
        """The tightest bound on |ts_i - ts_j| that follows: the shortest path.  int64 [n, n] ns, finite.

        It never exceeds what is given, and keeping it for all pairs is the same as keeping what is given.
        Cost: n**3, once.
        """
        exact = [[int(ns) for ns in row] for row in self.given]
        for k in range(self.streams):
            for i in range(self.streams):
                for j in range(self.streams):
                    exact[i][j] = min(exact[i][j], exact[i][k] + exact[k][j])
        return np.array([[min(ns, UNBOUNDED) for ns in row] for row in exact], np.int64)

    @property
    def was_given(self) -> Array:
        """Which pairs the query states a bound for: bool [n, n]; the rest of `completed` was deduced."""
        stated: Array = (self.given != UNBOUNDED) & ~np.eye(self.streams, dtype=bool)
        return stated

    @property
    def widest(self) -> int:
        """The largest bound of all pairs, given or deduced, in ns: the window of the global conservative approach."""
        return int(self.completed.max())

    def lookback(self, stream: int) -> int:
        """How long after its own time a tuple of `stream` may still join, in ns: the local window of that stream.

        A combination is completed by its last tuple, and that one may be of any other stream.
        """
        return int(self.completed[stream].max())

    def differences(self, *, complete: bool) -> Array:
        """Least upper bounds on ts_j - ts_i a combination must keep: int64 [d, n, n] ns, UNBOUNDED where none.

        One matrix where d = 1; of a directed path two, of which it must keep one: as written, and reversed.
        complete: with bounds that follow for all pairs, else only those given.
        """
        bounds = self.completed if complete else self.given
        if not self.is_directed:
            return bounds[np.newaxis].copy()
        place = {stream: at for at, stream in enumerate(self.path or ())}
        forward = bounds.copy()
        for i in range(self.streams):
            for j in range(self.streams):
                if place[j] < place[i] and (complete or bounds[i, j] != UNBOUNDED):
                    forward[i, j] = 0
        return np.stack([forward, forward.T])

    def order_from(self, stream: int) -> tuple[int, ...]:
        """The other streams in an order in which each is tied by a given window to one before it."""
        return tuple(self._reached(stream)[1:])


def _name(names: Sequence[str], stream: int) -> str:
    return f"'{names[stream]}'" if 0 <= stream < len(names) else f"stream {stream}"


def _check_streams(streams: int, names: tuple[str, ...]) -> None:
    if isinstance(streams, bool) or not isinstance(streams, int | np.integer) or not 2 <= streams <= MOST_STREAMS:
        raise ConfigError(
            f"window graph: needed 2 to {MOST_STREAMS} streams; got {streams!r}; join others with the result"
        )
    if names and (len(names) != streams or len(set(names)) != streams):
        raise ConfigError(
            f"window graph: needed {streams} different names, one per stream; got {list(names)}; name each once"
        )
