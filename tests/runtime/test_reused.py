"""Memory that is used again: never while somebody holds a part of it, and no more of it than is asked for."""

from __future__ import annotations

from threading import Thread

import numpy as np
import pyarrow as pa
import pytest

from nile.exact.state.lent import roomy
from nile.exact.state.reused import _FADES, _KEPT, Reused, address, reused

MANY = 100_000


@pytest.fixture
def blocks() -> Reused:
    return Reused()


def _place(n: int, of: Reused) -> int:
    """Where an array lies that nobody holds afterwards."""
    made = reused(n, np.int64, of)
    made[:] = n
    assert (made == n).all()
    return address(made)


def test_the_next_array_of_about_the_size_has_the_memory_of_the_last(blocks: Reused) -> None:
    place = _place(MANY, blocks)
    assert place == _place(MANY, blocks) == _place(MANY + 10, blocks)
    assert place % 64 == 0
    assert reused(MANY, np.int8, blocks).shape == (MANY,)
    assert blocks.nbytes < 8 * MANY * 9 // 8 + 2 * MANY


def test_whoever_holds_a_part_holds_it_all(blocks: Reused) -> None:
    first = reused(MANY, np.int64, blocks)
    first[:] = 1
    part, place = first[5:10].view(np.float64).reshape(5, 1), address(first)
    column = pa.Array.from_buffers(pa.int64(), 3, [None, pa.py_buffer(first)])
    del first
    assert _place(MANY, blocks) != place
    del part
    assert _place(MANY, blocks) != place
    assert column.to_pylist() == [1, 1, 1]
    del column
    assert place in {address(each) for each in [reused(MANY, np.int64, blocks) for _ in range(2)]}


def test_what_is_kept_has_a_bound(blocks: Reused) -> None:
    held = [reused(_KEPT // 8 // 4, np.int64, blocks) for _ in range(9)]
    assert blocks.nbytes == 0
    held.clear()
    assert _KEPT * 3 // 4 <= blocks.nbytes <= _KEPT


def test_what_nobody_asks_for_is_let_go(blocks: Reused) -> None:
    _place(50 * MANY, blocks)
    for _ in range(_FADES - 2):
        _place(MANY, blocks)
    assert blocks.nbytes >= 8 * 50 * MANY
    for _ in range(_FADES + 1):
        _place(MANY, blocks)
    assert 8 * MANY <= blocks.nbytes < 9 * MANY


def test_threads_never_have_the_same(blocks: Reused) -> None:
    failed: list[int] = []

    def work(number: int) -> None:
        for turn in range(300):
            made = [reused(20_000 + 2_000 * (turn % 3), np.int64, blocks) for _ in range(1 + turn % 4)]
            for each in made:
                each[:] = number
            failed.extend(number for each in made if (each != number).any())

    threads = [Thread(target=work, args=(number,)) for number in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not failed


def test_few_elements_take_nothing_from_it() -> None:
    assert roomy(4_096).base is None
    assert roomy(10_000).base is None
    assert roomy(1 << 20).base is not None
