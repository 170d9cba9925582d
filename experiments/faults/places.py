"""The places of a program at which CPython lets a signal's handler run, and something that happens at one of them."""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable
from functools import lru_cache
from types import CodeType, FrameType
from typing import Any

__all__ = ["at_place"]


@lru_cache(maxsize=65_536)
def _places(code: CodeType) -> frozenset[int]:
    """Offsets of the instructions before which a handler may have run: after a call, a jump back, the beginning."""
    found = set()
    caught = dis.Bytecode(code).exception_entries  # type: ignore[attr-defined]

    def handler(offset: int) -> int | None:
        return next((entry.target for entry in reversed(caught) if entry.start <= offset < entry.end), None)

    last = None
    for step in dis.get_instructions(code):
        # What is raised after a call is caught by whoever catches what the call raises, and not by whoever comes next.
        if last is not None and handler(last.offset) == handler(step.offset):
            found.add(step.offset)
        last = step if step.opname.startswith("CALL") or step.opname == "RESUME" else None
        if "BACKWARD" in step.opname and handler(step.offset) == handler(int(step.argval)):
            found.add(int(step.argval))
    return frozenset(found)


def at_place(
    action: Callable[[], Any],
    at: int | None,
    happens: Callable[[], object],
    spared: tuple[str, ...] = (),
) -> int:
    """Run an action; how many places it came by, up to the one where something happened.

    `happens` is called at the place `at`; None: nowhere.  spared: ends of the names of files whose places are none.
    What `happens` raises is raised at the place.
    """
    passed = 0
    last = -1 if at is None else at

    def entered(frame: FrameType, _: str, __: Any) -> Any:
        code = frame.f_code
        if spared and code.co_filename.endswith(spared):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        places = _places(code)

        def inside(frame: FrameType, event: str, _: Any) -> Any:  # called for every instruction: as little as can be
            nonlocal passed
            if frame.f_lasti in places and event == "opcode":
                passed += 1
                if passed - 1 == last:
                    sys.settrace(None)  # the rest runs at its own speed
                    happens()
            return inside

        return inside

    before = sys.gettrace()
    sys.settrace(entered)
    try:
        action()
    finally:
        sys.settrace(before)
    return passed
