"""Compiling that is interrupted anywhere leaves no lock behind: other threads compile afterwards."""

from __future__ import annotations

import subprocess
import sys

import pytest

# In a process of its own: LLVM aborts one in which something of it is disposed of twice, for which interrupts inside
# its destructors may be the reason; so these are left out.
CHILD = """
import os, sys
from threading import Thread

from llvmlite.binding import ffi
from nile.summaries.heavy import numba
numba.njit
from numba.core import compiler_lock

TAKING = {
    each.__code__
    for kind in (compiler_lock._CompilerLock, ffi._LLVMLock)
    for name in ("acquire", "release", "__enter__", "__exit__")
    if (each := getattr(kind, name, None)) is not None
}

def fresh():
    def plus(number):
        return number + 1
    return numba.njit(plus)

def disposes(frame):
    while frame is not None:
        if frame.f_code.co_name in ("__del__", "close"):
            return True
        frame = frame.f_back
    return False

def interrupted_at(place):
    passed = 0
    def trace(frame, event, _):
        nonlocal passed
        if frame.f_code not in TAKING or disposes(frame):
            return None
        passed += event in ("line", "return")
        if passed == place:
            passed += 1
            raise KeyboardInterrupt
        return trace
    function = fresh()
    sys.settrace(trace)
    try:
        function(1)
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(None)
    return passed > place

def compiles_elsewhere():
    found = []
    function = fresh()
    helper = Thread(target=lambda: found.append(function(41)), daemon=True)
    helper.start()
    helper.join(20.0)
    return found == [42]

assert compiles_elsewhere()
reached = 0
for place in eval(sys.argv[1]):
    if not interrupted_at(place):
        break
    reached += 1
    if not compiles_elsewhere():
        print("stands still after place", place, flush=True)
        os._exit(1)
print(reached, flush=True)
os._exit(0)
"""


@pytest.mark.parametrize("places", ["range(1, 30)", "range(30, 2000, 67)"], ids=["first", "spread"])
def test_an_interrupt_of_compiling_leaves_no_lock_that_another_thread_waits_for(places: str) -> None:
    done = subprocess.run([sys.executable, "-c", CHILD, places], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-1500:]
    assert int(done.stdout) >= 10
