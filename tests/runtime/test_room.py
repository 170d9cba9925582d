"""Memory of large arrays that is used again: never while anything lies in it, and never too much of it."""

from __future__ import annotations

import random
import threading
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from nile.exact.state import lent
from nile.exact.state.lent import roomy

LARGE = 50_000


def address(array: Any) -> int:
    """Where its memory begins."""
    return int(array.ctypes.data)


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has just begun."""
    monkeypatch.setattr(lent, "_free", {})


def test_memory_is_used_again_once_the_last_view_of_it_has_gone() -> None:
    array = roomy(LARGE)
    array[:] = 7
    begin, view = address(array), array[100:]
    del array
    assert address(roomy(LARGE)) != begin
    column = pa.Array.from_buffers(pa.int64(), 10, [None, pa.py_buffer(view)])
    del view
    assert address(roomy(LARGE)) != begin
    assert column.to_pylist() == [7] * 10
    del column
    assert address(roomy(LARGE - 40, np.float64)) == begin  # of nearly the size, whatever lies in it


def test_small_and_giant_arrays_are_plain_ones() -> None:
    before = len(lent._taken)
    several = [roomy(10), roomy(10, np.int8), roomy(1 << 22), roomy(0)]
    assert [each.shape[0] for each in several] == [10, 10, 1 << 22, 0]
    assert all(each.base is None for each in several)
    assert len(lent._taken) <= before


def test_no_more_is_kept_than_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lent, "_MOST", sum(lent._held()) + 10 * 8 * LARGE)
    monkeypatch.setattr(lent, "_KEPT", 3 * 8 * LARGE)
    several = [roomy(LARGE) for _ in range(30)]
    assert 5 <= sum(each.base is not None for each in several) <= 10
    for k, each in enumerate(several):
        each[:] = k
    assert [each[-1] for each in several] == list(range(30))
    del several, each
    assert roomy(0).shape == (0,)  # which puts back what has gone
    assert 0 < lent._held()[0] <= lent._KEPT
    several = [roomy(LARGE) for _ in range(10)]
    del several
    lent._left.clear()  # as if an interrupt had come between
    assert sum(roomy(2 * LARGE).base is not None for _ in range(5)) == 5


def test_threads_never_write_into_what_others_hold() -> None:
    wrong: list[int] = []

    def work(seed: int) -> None:
        draw = random.Random(seed)
        held: list[tuple[int, Any]] = []
        for step in range(300):
            if held and draw.random() < 0.5:
                value, array = held.pop(draw.randrange(len(held)))
                wrong.extend([value] * int((array != value).any()))
                del array
            else:
                value = 1_000 * seed + step
                array = roomy(draw.randint(20_000, 60_000))
                array[:] = value
                held.append((value, array))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not wrong
    assert sum(lent._held()) <= lent._MOST
