"""A full or failing disk under the whole engine: what was committed stays, ingest pauses, then goes on."""

from __future__ import annotations

from pathlib import Path

import pytest
from child_engine import differences, opened, push, rows, seen
from test_history_failures import Failing

import nile
from nile.durable.keeper import Keeper
from nile.engine.database import Database
from nile.pyramid.disk.directory import StoreDirectory


def database(path: Path, disk: Failing) -> nile.Database:
    """A database whose every push writes a checkpoint first."""
    return Database(Keeper(StoreDirectory.open(path, files=disk), memory=None, every=0.0))


@pytest.mark.parametrize(
    "countdown",
    [
        pytest.param(at, marks=pytest.mark.slow) if at in (1, 3, 5, 12, 14) else at
        for at in (0, 1, 2, 3, 5, 8, 12, 13, 14, 15)
    ],
)
def test_a_push_without_room_on_the_disk_takes_nothing_and_succeeds_later(tmp_path: Path, countdown: int) -> None:
    with opened(tmp_path / "store") as db:
        push(db, 0, 300)
    disk = Failing()
    db = database(tmp_path / "store", disk)
    refused = 0
    for begin in range(300, 900, 100):
        if begin == 500:
            disk.countdown = countdown
        before = seen(db)
        try:
            db.push("sales", rows(begin, begin + 100), offset=begin + 100)
        except nile.StoreWriteError:
            refused += 1
            assert differences(seen(db), before) == []
            assert db.offset("sales") == begin
            with StoreDirectory.open(tmp_path / "store", read_only=True) as kept:  # what was committed is whole
                assert kept.state["streams"]["sales"]["offset"] <= begin
            db.push("sales", rows(begin, begin + 100), offset=begin + 100)
    db.subscription("recent").poll()
    assert refused == 1
    assert disk.countdown is None
    db.close()
    twin = opened(None)
    push(twin, 0, 300)
    for begin in range(300, 900, 100):
        twin.push("sales", rows(begin, begin + 100), offset=begin + 100)
    twin.subscription("recent").poll()
    with nile.connect(tmp_path / "store", checkpoint=None) as again:
        assert differences(seen(again), seen(twin)) == []


def test_a_close_without_room_says_so_and_leaves_what_was_committed(tmp_path: Path) -> None:
    with opened(tmp_path / "store") as db:
        push(db, 0, 200)
    disk = Failing()
    db = Database(Keeper(StoreDirectory.open(tmp_path / "store", files=disk), memory=None, every=None))
    push(db, 200, 260)
    disk.countdown = 1
    with pytest.raises(nile.StoreWriteError):
        db.close()
    with nile.connect(tmp_path / "store", checkpoint=None) as again:  # the lock is free
        assert again.offset("sales") == 200
