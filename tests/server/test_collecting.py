"""A server's process looks for garbage on its loop's thread, and leaves the collector as it was."""

from __future__ import annotations

import gc
import threading
import weakref
from pathlib import Path
from typing import Any

from served import served

import nile


class _Ring:
    def __init__(self) -> None:
        self.me = self


def test_the_loop_collects_what_other_threads_leave(tmp_path: Path) -> None:
    usual, frozen, by = gc.get_threshold(), gc.get_freeze_count(), set()

    def told(*_: Any) -> None:
        by.add(threading.get_ident())

    with served(nile.connect(tmp_path / "store"), alone=True) as up:
        assert gc.get_threshold()[0] > usual[0]
        up.wait_until(lambda: gc.get_freeze_count() > frozen)  # what is there at the start is taken to stay
        gc.callbacks.append(told)
        try:
            ring = weakref.ref(_Ring())
            kept = [[] for _ in range(20 * usual[0])]  # type: ignore[var-annotated]
            up.wait_until(lambda: ring() is None, 10)
        finally:
            gc.callbacks.remove(told)
    assert len(kept) == 20 * usual[0]
    assert by
    assert threading.get_ident() not in by
    assert gc.get_threshold() == usual


def test_who_has_turned_the_collector_off_keeps_it_so(tmp_path: Path) -> None:
    usual = gc.get_threshold()
    gc.set_threshold(0)
    try:
        with served(nile.connect(tmp_path / "store"), alone=True):
            assert gc.get_threshold()[0] == 0
        assert gc.get_threshold()[0] == 0
    finally:
        gc.set_threshold(*usual)
