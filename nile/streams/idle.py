"""Streams that fall silent: their time moves on without them, so that windows end and other streams are not held up."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from nile.base.times import TIME_LIMIT
from nile.streams.live import LiveStream

__all__ = ["Idleness"]


@dataclass(slots=True)
class _Last:
    """When a stream was heard of (ns of the clock), and which event time it had passed then."""

    heard: int
    passed: int | None


class Idleness:
    """Says how far the time of silent streams has come.

    A stream with `idle` (ns) that was not pushed to for so long is silent until the next push.  Its event time goes on
    as fast as the clock, and at least as far as all streams that stand in a query with it and are not silent.
    clock: ns, never falling.
    """

    def __init__(self, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self.clock = clock
        self._last: dict[LiveStream, _Last] = {}

    def heard(self, stream: LiveStream) -> None:
        """A stream is there, or was pushed to."""
        if stream.idle is not None:
            stream.silent = False
            self._last[stream] = _Last(self.clock(), stream.passed)

    def due(self, streams: Iterable[LiveStream], together: Iterable[Mapping[str, LiveStream]]) -> list[LiveStream]:
        """Move on those that are silent; which did.  together: the streams of each standing query."""
        now = self.clock()
        watched = [stream for stream in streams if stream.idle is not None]
        for stream in watched:
            assert stream.idle is not None
            stream.silent = now - self._last[stream].heard >= stream.idle
        moved = []
        groups = [list(each.values()) for each in together]
        for stream in watched:
            if stream.silent and (to := self._reached(stream, now, groups)) is not None:
                stream.advance(min(to, TIME_LIMIT))
                moved.append(stream)
        self._last = {stream: last for stream, last in self._last.items() if not stream.closed}
        return moved

    def _reached(self, stream: LiveStream, now: int, groups: Iterable[list[LiveStream]]) -> int | None:
        """The time that a silent stream has passed by now; None: it has not moved."""
        last = self._last[stream]
        assert stream.idle is not None
        if last.passed is None and stream.passed is not None:  # restored, or moved by others
            last.passed, last.heard = stream.passed, now - stream.idle
        own = [] if last.passed is None else [last.passed + now - last.heard - stream.idle]
        awake = {other for group in groups if stream in group for other in group if not other.silent}
        passed = [other.passed for other in awake]
        others = [at for at in passed if at is not None]
        found = max([*own, *([min(others)] if others and len(others) == len(passed) else [])], default=None)
        return None if found is None or (stream.passed is not None and found <= stream.passed) else found
