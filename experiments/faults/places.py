"""The places of a program at which CPython lets a signal's handler run, and something that happens at one of them.

They are found by a signal that comes again whenever its handler has run: the interpreter looks for signals at its own
places, after a call, a jump back, at the beginning of a function, and finds one at each of them.
"""

from __future__ import annotations

import _thread
import signal
from collections.abc import Callable
from itertools import repeat
from types import FrameType
from typing import Any

__all__ = ["at_place"]

_SIGNAL: Any = getattr(signal, "SIGRTMAX", 64) - 3
"""What comes again and again: of real time, whose handlers `nile.base.interrupts` lets run."""


def at_place(
    action: Callable[[], Any],
    at: int | None,
    happens: Callable[[], object],
    spared: tuple[str, ...] = (),
) -> int:
    """Run an action in the main thread; how many places it came by, up to the one where something happened.

    `happens` is called at the place `at`; None: nowhere.  spared: ends of the names of files whose places are none.
    What `happens` raises is raised at the place.  Needs signals of real time (Linux).  Cost: .5 us a place.
    """
    passed, goes_on = 0, True
    last = -1 if at is None else at
    spared = (*spared, __file__)
    again = map(_thread.interrupt_main, repeat(_SIGNAL))

    def came(_: int, frame: FrameType | None) -> object:
        nonlocal passed, goes_on
        if not goes_on:
            return None
        if frame is None or not frame.f_code.co_filename.endswith(spared):
            passed += 1
            if passed - 1 == last:
                goes_on = False  # the rest runs at its own speed
                return happens()
        # A loop looks for signals only where it jumps back: this one comes after the handler.
        for none in again:
            return none
        return None

    before = signal.signal(_SIGNAL, came)
    try:
        _thread.interrupt_main(_SIGNAL)
        action()
    finally:
        goes_on = False
        signal.signal(_SIGNAL, before)
    return passed
