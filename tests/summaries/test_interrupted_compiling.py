"""Compiling that is interrupted anywhere leaves no lock behind: other threads compile afterwards."""

from __future__ import annotations

import sys
from collections.abc import Callable
from threading import Thread
from types import FrameType
from typing import Any

import pytest
from llvmlite.binding import ffi
from numba.core import compiler_lock

from nile.summaries.heavy import numba

FILES = (compiler_lock.__file__, ffi.__file__)


def fresh() -> Callable[[int], int]:
    """A function that is not compiled yet."""

    def plus(number: int) -> int:
        return number + 1

    made: Callable[[int], int] = numba.njit(plus)
    return made


def interrupted_at(place: int) -> bool:
    """Compile, raising KeyboardInterrupt at a line, or an end of a function, of those that take and give back locks;
    whether there were so many."""
    passed = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal passed
        if frame.f_code.co_filename not in FILES:
            return None
        passed += event in ("line", "return")
        if passed == place:
            passed += 1
            raise KeyboardInterrupt
        return trace

    function = fresh()
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function(1)
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
    return passed > place


def compiles_elsewhere() -> bool:
    """Whether another thread can compile."""
    found: list[int] = []
    function = fresh()
    helper = Thread(target=lambda: found.append(function(41)), daemon=True)
    helper.start()
    helper.join(20.0)
    return found == [42]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # in destructors they are no errors
@pytest.mark.parametrize("places", [range(1, 30), range(30, 3_000, 97)], ids=["first", "spread"])
def test_an_interrupt_of_compiling_leaves_no_lock_that_another_thread_waits_for(places: range) -> None:
    assert compiles_elsewhere()
    reached = 0
    for place in places:
        if not interrupted_at(place):
            break
        reached += 1
        assert compiles_elsewhere(), place
    assert reached >= 10
