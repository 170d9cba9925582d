"""Memory of work that the next work uses again: never of two at once, and no more of it than is used."""

from __future__ import annotations

from collections import deque

import numpy as np
import pytest

from nile.exact.state import workspace
from nile.exact.state.workspace import Workspace

MANY = 10_000


@pytest.fixture(autouse=True)
def left(monkeypatch: pytest.MonkeyPatch) -> deque[tuple[np.ndarray, int]]:
    """What works have left, from none on."""
    made: deque[tuple[np.ndarray, int]] = deque()
    monkeypatch.setattr(workspace, "_left", made)
    return made


def _worked(*sizes: int) -> list[np.ndarray]:
    space = Workspace()
    made = [space.roomy(size) for size in sizes]
    for number, each in enumerate(made):
        each[:] = number
    assert all((each == number).all() for number, each in enumerate(made))
    assert [each.shape for each in made] == [(size,) for size in sizes]
    space.end()
    return made


def test_the_next_work_has_the_memory_of_the_last() -> None:
    _worked(MANY, 3 * MANY)  # leaves as much as it needed
    first, second = _worked(MANY, 3 * MANY)
    again, other = _worked(MANY, 3 * MANY)
    assert np.shares_memory(first, again)
    assert np.shares_memory(second, other)
    assert not np.shares_memory(again, other)
    assert again.__array_interface__["data"][0] % 64 == other.__array_interface__["data"][0] % 64 == 0


def test_works_at_once_share_nothing() -> None:
    _worked(MANY)
    one, other = Workspace(), Workspace()  # as of a handler that pushes in the middle of a push
    first, second = one.roomy(MANY), other.roomy(MANY)
    assert not np.shares_memory(first, second)
    other.end()
    assert not np.shares_memory(first, Workspace().roomy(MANY))


def test_what_is_beyond_what_was_left_has_memory_of_its_own() -> None:
    _worked(MANY)
    inside, beyond = _worked(MANY, MANY)
    assert not np.shares_memory(inside, beyond)
    inside, beyond = _worked(MANY, MANY)
    assert inside.base is beyond.base is not None


def test_a_work_that_fails_leaves_nothing_and_few_elements_take_nothing(
    left: deque[tuple[np.ndarray, int]],
) -> None:
    Workspace().roomy(MANY)
    _worked(10, 20)
    assert not left
    _worked(MANY)
    assert len(left) == 1


def test_memory_that_works_hardly_use_is_let_go_and_so_is_that_of_very_much(
    left: deque[tuple[np.ndarray, int]],
) -> None:
    _worked(100 * MANY)
    for _ in range(workspace._FADES):
        _worked(MANY)
    assert left[0][0].nbytes >= 800 * MANY
    _worked(MANY)
    assert left[0][0].nbytes < 9 * MANY
    _worked(2 * workspace._MOST // 8)
    assert [memory.nbytes for memory, _ in left] == [workspace._MOST]
    _worked(2 * workspace._MOST // 8)
    assert [memory.nbytes for memory, _ in left] == [workspace._MOST]


def test_many_works_at_once_leave_the_memory_of_some(left: deque[tuple[np.ndarray, int]]) -> None:
    spaces = [Workspace() for _ in range(9)]
    for each in spaces:
        each.roomy(MANY)
    for each in spaces:
        each.end()
    assert len(left) == workspace._AT_ONCE
