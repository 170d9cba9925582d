"""The bucket queue against lists of Python."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nile.preferences import queue_kernels as kernels
from nile.preferences.queue import grown_queue, new_queue


class Twin:
    """Classes as lists, oldest first."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.classes: dict[int, list[int]] = {}

    def apply(self, number: int, what: int) -> int:
        held = {k: v for k, v in self.classes.items() if v}
        if what >= 0:
            if sum(map(len, held.values())) < self.room:
                self.classes.setdefault(what, []).append(number)
            return -1
        if not held:
            return -1
        if what == -3:
            return held[min(held)].pop(0)
        return held[max(held)].pop(0 if what == -2 else -1)


@given(st.lists(st.one_of(st.integers(0, 127), st.sampled_from([-1, -2, -3])), max_size=120))
def test_any_operations_take_out_what_lists_would(operations: list[int]) -> None:
    out = np.empty(len(operations), np.int64)
    queue = new_queue(32)
    kernels.replay_operations(queue, np.array(operations, np.int64), out)
    twin = Twin(32)
    assert out.tolist() == [twin.apply(number, what) for number, what in enumerate(operations)]


def test_a_grown_queue_holds_the_same_entries_and_twice_the_places() -> None:
    queue = new_queue(4)
    kernels.replay_operations(queue, np.array([5, 9, 5, 1], np.int64), np.empty(4, np.int64))
    assert kernels.is_full.py_func(queue)
    bigger = grown_queue(queue)
    out = np.empty(9, np.int64)
    kernels.replay_operations(bigger, np.array([3, 3, 3, 3, -1, -1, -1, -1, -1], np.int64), out)
    assert out[4:].tolist() == [1, 2, 0, 3, 2]
