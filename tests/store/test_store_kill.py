"""Real processes killed at random moments: what was acknowledged is there, and never a mix."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from child_store import step, verify
from store_killer import ROOT, Kills, in_memory, kill_over_and_over

from nile.pyramid.disk import StoreDirectory

CHILD = ROOT / "tests/harness/child_store.py"


@pytest.fixture
def path() -> Iterator[Path]:
    """A place in memory where there is one: a killed process loses nothing that it wrote, wherever it wrote it."""
    with in_memory() as folder:
        yield folder / "store"


def kills(path: Path, count: int, seed: int) -> Kills:
    command = [sys.executable, CHILD, path]
    return kill_over_and_over(command, lambda _: verify(path) if path.exists() else 0, count, seed)


def test_a_dozen_kills(path: Path) -> None:
    done = kills(path, 12, 1)
    assert done.counted >= 12
    assert done.steps >= 12


@pytest.mark.long
def test_five_hundred_kills(path: Path) -> None:
    done = kills(path, 500, 2)
    assert done.counted >= 500
    assert done.late > 0


def test_the_check_of_what_a_killed_child_left_finds_a_mix(path: Path) -> None:
    with StoreDirectory.open(path) as store:
        for _ in range(7):
            step(store)
        state = dict(store.state)
        store.commit({**state, "counter": 8}, store.files().values())
    with pytest.raises(AssertionError):
        verify(path)


def test_a_child_that_says_more_than_is_durable_is_found(path: Path) -> None:
    liar = [sys.executable, "-u", "-c", "import time\nprint('ready')\nprint(5)\ntime.sleep(100)"]
    with pytest.raises(AssertionError, match="5 was acknowledged, 3 came back"):
        kill_over_and_over(liar, lambda _: 3, 1, 0, longest=0.2, early=0.0)
    dies = [sys.executable, "-c", "raise SystemExit('enough')"]
    with pytest.raises(AssertionError, match="ended by itself: enough"):
        kill_over_and_over(dies, lambda _: 0, 1, 0, longest=2.0, early=0.0)
    assert not path.exists()
