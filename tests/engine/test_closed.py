"""Closed is closed: one error of one class from whatever is asked of a database after `close()`."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pytest

import nile
from nile.experiments.faults.scoring import attempted
from nile.experiments.faults.surface import closed

CLICKS = pa.schema([("at", pa.float64()), ("page", pa.string())])


@pytest.mark.parametrize("seed", range(len(closed.asked())), ids=closed.asked())
def test_what_is_asked_after_close_is_refused_and_answers_given_before_are_whole(seed: int) -> None:
    assert attempted(closed.FAULT, [seed]).failed == []


def test_outputs_that_a_store_keeps_are_not_read_twice(tmp_path: Path) -> None:
    with nile.connect(tmp_path / "store") as db:
        db.stream("clicks", CLICKS, time="at")
        pages = db.subscribe("SELECT page FROM clicks", name="pages")
        db.push("clicks", {"at": [1.0, 2.0], "page": ["a", "b"]})
        db.advance(10.0)
    with pytest.raises(nile.DatabaseClosed, match=r"nobody has read \(2 rows\); open the store"):
        pages.poll()
    with nile.connect(tmp_path / "store") as db:
        assert sum(map(len, db.subscription("pages").poll())) == 2


def test_who_follows_a_kept_query_while_it_is_closed_is_at_the_end(tmp_path: Path) -> None:
    db = nile.connect(tmp_path / "store")
    db.stream("clicks", CLICKS, time="at")
    pages = db.subscribe("SELECT page FROM clicks", name="pages")
    found: list[pa.RecordBatch] = []
    reader = threading.Thread(target=lambda: found.extend(pages.follow()))
    reader.start()
    db.close()
    reader.join(10.0)
    assert not reader.is_alive()
    assert found == []


def test_progress_that_was_closed_does_not_look_done() -> None:
    db = nile.connect().register("s", {"t": [1, 2]}, time="t")
    growing = db.sql("SELECT t FROM s").progress(0)
    growing.close()
    with pytest.raises(nile.ConfigError, match=r"got one after close\(\)"):
        iter(growing)
