"""The order of reads of sources in several parts, in a store, over crashes."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from thinning import thinned

from nile.durable.arrivals import Arrivals
from nile.summaries.errors import StoreWriteError


def store(path: Path, epoch: int = 0) -> Any:
    return SimpleNamespace(path=path, epoch=epoch)


def place(at: int) -> dict[str, int]:
    return {"0": at, "1": 2 * at}


def test_reads_after_the_place_of_the_checkpoint_are_ahead_in_their_order(tmp_path: Path) -> None:
    arrivals = Arrivals(store(tmp_path))
    assert arrivals.ahead("s", None) == []
    for source in ("s", "t"):
        for before, after in ((None, place(3)), (place(3), place(4)), (place(4), place(9))):
            arrivals.add(source, before, after)
            arrivals.add(source, before, after)  # its rows had to wait
    for source in ("s", "t"):
        assert Arrivals(store(tmp_path)).ahead(source, None) == [place(3), place(4), place(9)]
        assert Arrivals(store(tmp_path)).ahead(source, place(4)) == [place(9)]
        assert Arrivals(store(tmp_path)).ahead(source, place(9)) == []
        assert Arrivals(store(tmp_path)).ahead(source, place(5)) == []
    assert Arrivals(store(tmp_path)).ahead("u", None) == []


def test_a_torn_line_and_what_follows_it_are_not_read(tmp_path: Path) -> None:
    arrivals = Arrivals(store(tmp_path))
    for at in range(5):
        arrivals.add("s", place(at), place(at + 1))
    whole = (tmp_path / "arrivals").read_bytes()
    ends = [at for at, byte in enumerate(whole) if byte == ord("\n")]
    for cut in range(len(whole)):
        (tmp_path / "arrivals").write_bytes(whole[:cut])
        known = sum(end <= cut for end in ends)
        assert Arrivals(store(tmp_path)).ahead("s", place(0)) == [place(at + 1) for at in range(known)]
    (tmp_path / "arrivals").write_bytes(whole[:60] + b"?" + whole[61:])
    assert Arrivals(store(tmp_path)).ahead("s", place(0)) == [place(1)]


def test_what_can_not_be_written_is_told_and_not_taken_for_written(tmp_path: Path) -> None:
    gone = Arrivals(store(tmp_path / "none"))
    with pytest.raises(StoreWriteError, match="arrivals: needed to be written"):
        gone.add("s", None, place(1))
    (tmp_path / "none").mkdir()
    gone.add("s", None, place(1))
    assert Arrivals(store(tmp_path / "none")).ahead("s", None) == [place(1)]


@pytest.mark.parametrize("seed", thinned(range(32), 8))
def test_over_any_crashes_and_checkpoints_reads_come_as_they_were_told(tmp_path: Path, seed: int) -> None:
    """Two sources, killed at any step: before the line, between it and the rows, and after."""
    draw = random.Random(seed)
    folder = store(tmp_path)
    kept: dict[str, Any] = {"s": None, "t": None}  # of the last checkpoint
    told: dict[str, dict[Any, Any]] = {"s": {}, "t": {}}  # what followed which place
    for _ in range(25):
        arrivals, at = Arrivals(folder), dict(kept)
        ahead: dict[str, list[Any]] = {}
        for _ in range(draw.randrange(12)):
            source = draw.choice("st")
            if source not in ahead:
                ahead[source] = arrivals.ahead(source, at[source])
            known, before = told[source], at[source]
            after = ahead[source].pop(0) if ahead[source] else place((before or place(0))["0"] + draw.randrange(1, 9))
            arrivals.add(source, before, after)
            if draw.random() < 0.1:
                break
            if draw.random() < 0.2:  # room is made for the rows
                kept, folder.epoch = dict(at), folder.epoch + 1
            assert known.setdefault(str(before), after) == after
            at[source] = after
            if draw.random() < 0.2:
                kept, folder.epoch = dict(at), folder.epoch + 1
                for name in told:
                    told[name] = {}
    assert len((tmp_path / "arrivals").read_bytes()) < 100 * 40
