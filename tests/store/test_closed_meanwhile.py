"""A database that is closed while a push reads its rows: the push is refused, or is in the store whole."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import nile
from nile.experiments.faults.places import at_place
from nile.experiments.faults.scene import Scene

COLUMNS = [("t", "float64"), ("k", "int64")]


def opened(path: Path | None) -> nile.Database:
    return nile.connect(path, checkpoint=None)


class Closing:
    """A table whose conversion closes the database."""

    def __init__(self, db: nile.Database) -> None:
        self.db = db

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        self.db.close()
        return pa.table({"t": [5.0], "k": [1]}).__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize("stored", [False, True])
def test_an_iterator_that_closes_the_database_gives_no_more_rows(stored: bool, tmp_path: Path) -> None:
    path = tmp_path / "store" if stored else None
    db = opened(path)
    db.stream("s", COLUMNS, time="t")
    told: list[int] = []
    db.subscribe("SELECT k FROM s", lambda batch: told.extend(batch.column("k").to_pylist()))

    def parts() -> Iterator[dict[str, Any]]:
        yield {"t": [1.0], "k": [1]}
        yield {"t": [2.0], "k": [2]}
        db.close()
        yield {"t": [3.0], "k": [3]}

    with pytest.raises(nile.DatabaseClosed):
        db.push("s", parts())
    assert 3 not in told
    if path is not None:
        with opened(path) as again:
            assert again.sql("SELECT k FROM s").fetchall() == [(1,), (2,)]


def test_a_converter_that_closes_the_database_leaves_no_offset(tmp_path: Path) -> None:
    db = opened(tmp_path / "store")
    db.stream("s", COLUMNS, time="t")
    with pytest.raises(nile.DatabaseClosed):
        db.push("s", Closing(db), offset=7)
    with opened(tmp_path / "store") as again:
        assert (again.sql("SELECT k FROM s").fetchall(), again.offset("s")) == ([], 0)


@pytest.mark.parametrize("share", [0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 0.8])
def test_a_handler_that_closes_the_database_cuts_no_push(share: float, tmp_path: Path) -> None:
    other = Scene(("rows", "running"), store=tmp_path / "y")
    places = at_place(partial(other.push, "a", 12), None, lambda: None)
    other.db.close()
    scene = Scene(("rows", "running"), store=tmp_path / "x")
    before = signal.signal(signal.SIGALRM, lambda *_: scene.db.close())
    refused = False
    try:
        at_place(partial(scene.push, "a", 12), int(share * places), lambda: signal.raise_signal(signal.SIGALRM))
    except nile.DatabaseClosed:
        refused = True
    finally:
        signal.signal(signal.SIGALRM, before)
    with pytest.raises(nile.DatabaseClosed):
        scene.push("a", 24)
    scene.reopen()
    assert scene.db.offset("a") == {"rows": 12 if refused else 24}
    assert scene.next("a") == (12 if refused else 24)
    scene.db.close()
