"""A running source: its instance, started and closed once, what it has delivered, and its errors."""

from __future__ import annotations

import asyncio
import json
import math
import threading
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, runtime_checkable

from nile.sensors.sensor import END, NEW_VALUE, NO_VALUE, Sensor
from nile.streams.accounting import Accounting
from nile.summaries.errors import SourceError
from nile.summaries.heavy import pa

__all__ = ["PAUSE", "Instance", "Port", "plain", "told"]

PAUSE = 0.01
"""Seconds between two looks at whether queues have room again."""

_BEGUN = object()
"""What a step finds that was an init."""

_FIRST_WAIT, _LONGEST_WAIT = 0.1, 30.0
_IDLE = 0.01
"""Seconds from a read that found nothing to the next."""
_HEALTHY = 10.0
"""Seconds after which an error is no longer one in a row with those before."""
_MOST_STUCK = 3
"""Instances of one source that may hang at once; a thread cannot be ended from outside."""


@runtime_checkable
class _HasDescriptor(Protocol):
    def fileno(self) -> int: ...


async def told(call: Awaitable[Any]) -> Any:
    """What a call gives; KeyboardInterrupt and SystemExit that it raises are returned: raised, they end the loop."""
    try:
        return await call
    except (KeyboardInterrupt, SystemExit) as error:
        return error


class Instance:
    """An object of a source class.  `begin` and `end` call its init and close, each once whatever comes in between."""

    def __init__(self, made: Sensor) -> None:
        self.made = made
        self.begun = False
        self._ended = False
        self._lock = threading.Lock()

    def may_end(self) -> bool:
        """Whether `close` has to be called now, by whoever asks first."""
        with self._lock:
            first = self.begun and not self._ended
            self._ended = True
            return first

    def end(self) -> BaseException | None:
        """Close it, if it was begun and nobody has; what close raised."""
        if self.may_end():
            try:
                self.made.close()
            except BaseException as error:  # as in `Port.step`
                return error
        return None


class Port:
    """The source of one row.  At any time one thread serves it: the manager's, one of its own, or an event loop.

    row: the identity of the row; version: its number in the table's versions, which tuples carry; state: "starting",
    "open", "waiting" (to be begun anew), "ended", "failed" or "closed"; due: when it is to be asked next, on the
    monotonic clock; asked: since when a thread of its own is in a call, 0: in none; error: what went wrong last;
    restarts: how often it was begun anew; last: ns, time of its last tuple; queries: how many read it;
    ready: whether a selector says when it can be read; every: seconds between its calls; called: when its last call
    was over; gone: set when nobody reads it any more; closed: set once it is over; turn: who may go on with it, counted
    up when a thread is given up, under `lock`; place: where its first instance goes on.
    """

    def __init__(
        self,
        kind: Callable[[], Sensor],
        fields: pa.Schema,
        row: int,
        version: int,
        address: Any,
        static: dict[str, Any],
        place: Any = None,
    ) -> None:
        self._kind = kind
        self._fields = fields
        self._place = place
        self.row = row
        self.version = version
        self.address = address
        self.static = static
        self.accounting = Accounting()
        self.state = "starting"
        self.error: str | None = None
        self.restarts = 0
        self.failures = 0
        self._fruitless = 0
        self._begun = math.inf
        self.last = -(2**63)
        self.queries = 0
        self.due = 0.0
        self.ready = False
        self.every = 0.0
        self.called = 0.0
        self.instance: Instance | None = None
        self.asked = 0.0
        self.stuck = 0
        self.gone = threading.Event()
        self.closed = threading.Event()
        self.lock = threading.Lock()
        self.turn = 0

    @property
    def live(self) -> bool:
        """Whether it may still give something."""
        return self.state not in ("ended", "failed", "closed")

    def made(self) -> Instance:
        """Its instance, a new one where there is none.  Raises what its class raises."""
        if self.instance is None:
            made = self._kind()
            made.place, made.fields = self._place, self._fields
            self.instance = Instance(made)
        return self.instance

    def step(self) -> Any:
        """One init or read, as it comes: what read returned, an exception where it raised.

        KeyboardInterrupt and SystemExit, too: on a thread of ours nobody else would hear of them, and it would end.
        """
        try:
            instance = self.instance or self.made()
            if not instance.begun:
                instance.begun = True
                instance.made.init(self.address, self.static)
                return _BEGUN
            return instance.made.read()
        except BaseException as error:
            return error

    async def step_async(self) -> Any:
        """The same of a class whose calls are awaited; TimeoutError beyond the class's time-out."""
        try:
            instance = self.made()
            first, instance.begun = not instance.begun, True
            found = instance.made.init(self.address, self.static) if first else instance.made.read()
            if isinstance(found, Awaitable):
                found = await asyncio.wait_for(told(found), instance.made.timeout)
                if isinstance(found, BaseException):
                    return found
            return _BEGUN if first else found
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            return error

    def follow(self, found: Any, now: float) -> bool:
        """Say when to ask next, after what a step found; whether it is an end."""
        if isinstance(found, BaseException):
            return self.fail(found, now)
        assert self.instance is not None
        sensor = self.instance.made
        self.every = every = sensor.every
        if isinstance(found, tuple) and len(found) in (2, 3) and found[0] is NEW_VALUE:
            self._fruitless = 0
            # From when it was due, so that it keeps its rate; what it has missed is not made up for.
            self.due = max(self.due + every, now) if every else now
            return False
        if found is _BEGUN:
            self.state, self.due, self._begun = "open", now, now
            self.ready = isinstance(sensor, _HasDescriptor)
            return False
        if found is NO_VALUE:
            self.due = now + (every or _IDLE)
            return False
        if found is END:
            self.state = "ended"
            return True
        return self.fail(
            TypeError(
                "read: needed NO_VALUE, END, (NEW_VALUE, value) or (NEW_VALUE, value, time); got "
                f"{type(found).__name__}"
            ),
            now,
        )

    def fail(self, error: BaseException, now: float) -> bool:
        """An error: begin anew later, or give up; whether it was given up."""
        if now - self._begun > _HEALTHY:
            self.failures, self._begun = 0, math.inf
        self.error = f"{type(error).__name__}: {error}"[:500]
        most = Sensor.restarts if self.instance is None else self.instance.made.restarts
        hopeless = isinstance(error, SourceError)
        if hopeless or (most is not None and self.failures >= most):
            self.state = "failed"
            return True
        self.state = "waiting"
        self.due = now + min(_FIRST_WAIT * 2 ** min(self._fruitless, 10), _LONGEST_WAIT)
        self._fruitless += 1
        self.failures += 1
        self.restarts += 1
        return False

    def hangs(self, now: float) -> bool:
        """Whether its call has taken longer than it may."""
        if not self.asked or self.instance is None:
            return False
        limit = self.instance.made.timeout
        return limit is not None and now - self.asked > limit

    def abandon(self, now: float) -> bool:
        """Leave the instance to the thread that hangs in it, which closes it when it comes back; whether to give up."""
        assert self.instance is not None
        self.turn += 1
        self.asked = 0.0
        limit = self.instance.made.timeout
        self.stuck += 1
        ended = self.fail(TimeoutError(f"a call took longer than its timeout of {limit:g} s"), now)
        self._place = self.instance.made.place
        self.instance = None
        if self.stuck >= _MOST_STUCK and not ended:
            self.state, ended = "failed", True
        return ended

    def told_place(self) -> str | None:
        """Where its source is, as JSON; None where it does not say."""
        instance = self.instance
        if instance is None or instance.made.place is None:
            return None
        return json.dumps(plain(instance.made.place))

    def descriptor(self) -> Any:
        """What a selector can wait for; None where there is nothing."""
        made = None if self.instance is None else self.instance.made
        try:
            return made.fileno() if isinstance(made, _HasDescriptor) else None
        except Exception:
            return None

    def note_closing(self, error: BaseException) -> None:
        """Keep what went wrong in closing, unless something did before."""
        self.error = self.error or f"close: {type(error).__name__}: {error}"[:500]

    def let_go(self) -> Instance | None:
        """Its instance, which it forgets; to be ended by the caller."""
        instance, self.instance = self.instance, None
        if instance is not None:
            self._place = instance.made.place
        return instance


def plain(place: Any) -> Any:
    """A source's place as JSON has it."""
    if isinstance(place, dict):
        return {str(each): at for each, at in place.items()}
    if isinstance(place, tuple):
        return list(place)
    return place.decode() if isinstance(place, bytes) else place
