"""The whole engine killed at random moments: state exactly once, and the source goes on from its offset."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from child_engine import differences, in_small, opened, push, seen
from fork_server import ForkServer
from store_killer import ROOT, Kills, in_memory, kill_over_and_over

import nile
from nile.durable import keeper, pieces
from nile.pyramid.disk import StoreDirectory


@pytest.fixture(autouse=True)
def in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """What this process writes is cut as finely as what the child writes."""
    for name in ("LEAST", "_SHORTEST", "_MEAN"):
        monkeypatch.setattr(pieces, name, getattr(pieces, name))
    monkeypatch.setattr(keeper, "_SEALED", keeper._SEALED)
    in_small()


@pytest.fixture
def path() -> Iterator[Path]:
    """In memory: a killed process loses nothing that it wrote, wherever it wrote it."""
    with in_memory() as folder:
        yield folder / "store"


class Twin:
    """A database that never stops; it is brought to where the store is, and both must be the same."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.db = opened(None)

    def verify(self, _: int) -> int:
        """Compare, and return how many rows the store has taken."""
        if not (self.path / "manifest-1").exists():
            return 0
        with nile.connect(self.path, checkpoint=None) as kept:
            if "three" not in kept.subscriptions:  # killed while it was still being set up
                return 0
            offset = int(kept.offset("sales"))
            push(self.db, int(self.db.offset("sales")), offset)
            assert differences(seen(kept), seen(self.db)) == []
        return offset


def kills(path: Path, count: int, seed: int, early: float, *, fork: bool = False) -> Kills:
    """fork: children of one process that has all loaded; they begin with opening the store."""
    command = [sys.executable, ROOT / "tests/harness/child_engine.py", path]
    verify = Twin(path).verify
    if not fork:
        return kill_over_and_over(command, verify, count, seed, longest=1.0, early=early)
    server = ForkServer([*command, "fork"], ROOT)
    try:
        return kill_over_and_over(command, verify, count, seed, longest=1.0, early=early, start=server.start)
    finally:
        server.close()


@pytest.mark.slow
def test_an_engine_killed_a_few_times_has_lost_and_doubled_nothing(path: Path) -> None:
    done = kills(path, 3, 1, 0.0)
    assert done.counted >= 3


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 12))
def test_an_engine_killed_five_hundred_times_has_lost_and_doubled_nothing(path: Path, seed: int) -> None:
    """Ten stores, each killed fifty times: one alone can be run again."""
    done = kills(path, 50, seed, 0.2, fork=True)
    assert done.counted >= 50


def test_offsets_committed_apart_from_the_rows_are_found(path: Path) -> None:
    """The control: two generations mixed, as two files without a manifest would."""
    with opened(path) as db:
        push(db, 0, 700)
    with StoreDirectory.open(path) as store:
        state = {
            **store.state,
            "streams": {**store.state["streams"], "sales": {**store.state["streams"]["sales"], "offset": 650}},
        }
        store.commit(state, store.files().values())
    with pytest.raises(AssertionError):
        Twin(path).verify(0)
