"""What a repair drops of a history: an index is made again from its rows, rows that are gone are not made up."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from test_history import SCHEMA, check, made

from nile.pyramid.disk import StoreDirectory
from nile.pyramid.disk.care import check as check_store
from nile.pyramid.disk.care import repair
from nile.pyramid.history.history import History
from nile.summaries.errors import StoreCorrupt


def damage(path: Path, role: str) -> str:
    """Flip a bit of a file that both generations name."""
    file = sorted((path / "data").glob(f"*-{role}"))[0]
    data = bytearray(file.read_bytes())
    data[len(data) // 3] ^= 1
    file.write_bytes(data)
    return f"data/{file.name}"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A committed history of 3,000 rows with two indices, in both generations."""
    ts, batch = made(3_000, 5)
    with StoreDirectory.open(tmp_path) as directory:
        history = History("s", SCHEMA, directory=directory, indexed=["key", "number"], segment=256, largest=1024)
        history.append(ts, batch)
        for _ in range(2):
            state, files = history.stage(directory)
            directory.commit({"history": state}, files)
    return tmp_path


def test_a_dropped_index_is_made_again(path: Path) -> None:
    name = damage(path, "history-zone")
    assert any(name in wrong for wrong in check_store(path).wrong)
    assert repair(path, do=True).action == "drop"
    ts, batch = made(3_000, 5)
    for _ in range(2):  # once as repaired, once as committed after that
        with StoreDirectory.open(path) as directory:
            history = History.restore("s", SCHEMA, state=directory.state["history"], directory=directory)
            assert set(history.indexed) == {"key", "number"}
            check(history, ts, pa.Table.from_batches([batch]))
            state, files = history.stage(directory)
            directory.commit({"history": state}, files)
            assert "lost" not in directory.state
    assert check_store(path).wrong == []


def test_dropped_rows_are_an_error_that_names_the_file(path: Path) -> None:
    name = damage(path, "history-rows")
    assert repair(path, do=True).action == "drop"
    with StoreDirectory.open(path) as directory, pytest.raises(StoreCorrupt, match=f"{name}: needed this file of 's'"):
        History.restore("s", SCHEMA, state=directory.state["history"], directory=directory)
