"""Delayed interrupts: signals whose handlers would run in the middle of an atomic change.

CPython runs signal handlers in the main thread between any two instructions, and what a handler raises (Ctrl-C:
KeyboardInterrupt) comes out of whatever stands there, compiled code included.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from types import FrameType, TracebackType
from typing import Any

__all__ = ["INTERRUPTS", "Interrupts"]

_LAST = 31  # those above are for real time: no program that has a user uses them
_NUMBERS = tuple(int(number) for number in sorted(signal.valid_signals()) if number <= _LAST)
_PLAIN: Any = sys.modules.get("_signal", signal)
"""What stands behind `signal` in CPython, and makes no enumerations of what goes in and out: a sweep over all signals
takes a twentieth of the time."""
_handler: Callable[[int], Any] = _PLAIN.getsignal
_handle: Callable[[int, Any], Any] = _PLAIN.signal


class _Held:
    """The handlers that one outermost block put away, and the signals that came meanwhile."""

    __slots__ = ("away", "came", "depth", "handlers", "impatient", "thread", "waiting")

    def __init__(self) -> None:
        self.handlers: dict[int, Callable[[int, FrameType | None], Any]] = {}
        self.away: list[int] = []
        self.came: list[int] = []
        self.depth = 1
        self.thread = threading.get_ident()  # the main one: to ask for that costs more than to compare
        self.impatient = False
        self.waiting = False

    def arrived(self, number: int, frame: FrameType | None) -> None:
        """The handler that stands in for all others."""
        if self.waiting and not (self.impatient and number in self.came):
            self.came.append(number)
        else:
            self.handlers[number](number, frame)

    def put_away(self) -> None:
        for number in _NUMBERS:
            handler = _handler(number)
            if callable(handler):
                self.handlers[number] = handler
                self.away.append(number)
                _handle(number, self.arrived)

    def put_back(self) -> None:
        """What is back may run, and raise, before the others are."""
        try:
            while self.away:
                number = self.away[-1]
                if _handler(number) == self.arrived:  # else somebody set another one meanwhile
                    _handle(number, self.handlers[number])
                self.away.remove(number)
        finally:
            if self.away:
                self.put_back()
            self.waiting = False


class Interrupts:
    """`with INTERRUPTS:` no handler of a signal runs in this block; those of signals that came run at its end.

    Only the main thread ever runs handlers: in others it does nothing.  Blocks may nest, the outermost counts.  What
    the handlers raise (KeyboardInterrupt) comes out of its end, all others called first.
    Cost: 3 us in the main thread: the handler of each signal is looked at, those of Python are swapped.
    """

    def __init__(self) -> None:
        self._held: _Held | None = None

    def __enter__(self) -> Interrupts:
        held = self._held
        if held is not None and held.thread == threading.get_ident():
            held.depth += 1
            return self
        if threading.current_thread() is not threading.main_thread():
            return self
        held = _Held()
        try:
            held.put_away()
            held.waiting = True
            self._held = held
        except BaseException:
            held.put_back()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        held = self._held
        if held is None or held.thread != threading.get_ident():
            return
        held.depth -= 1
        if held.depth:
            return
        self._held = None
        try:
            held.put_back()
        finally:
            if held.came:
                with ExitStack() as each:
                    for number in dict.fromkeys(held.came):
                        each.callback(held.handlers[number], number, sys._getframe())

    def calling(self, call: Callable[[Any], object], given: Any) -> BaseException | None:
        """Call code that is not ours inside a block; what it raised.

        A first signal still waits, so that what has to follow gets done; when the same comes again, the call is taking
        too long for somebody: its handler runs at once.
        """
        held = self._held
        if held is not None and held.thread != threading.get_ident():
            held = None
        before = held is not None and held.impatient
        try:
            if held is not None:
                held.impatient = True
            call(given)
        except BaseException as error:
            return error
        finally:
            if held is not None:
                held.impatient = before
        return None


INTERRUPTS = Interrupts()
"""Of this process: there is one main thread."""
