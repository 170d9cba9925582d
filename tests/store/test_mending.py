"""A store that holds a standing query without what it reads: told with the way out, and mended."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import nile
from nile.experiments.cli import main
from nile.pyramid.disk.directory import StoreDirectory


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Two streams, a query on each, and then one stream dropped as earlier versions did: its query stays."""
    path = tmp_path / "shop"
    with nile.connect(path) as db:
        for name in "st":
            db.stream(name, [("at", "float64"), ("k", "int64")], time="at")
            db.subscribe(f"SELECT k FROM {name}", name=f"all_{name}")
            db.push(name, {"at": [1.0, 2.0], "k": [1, 2]})
    with StoreDirectory.open(path) as directory:
        state = dict(directory.state)
        state["streams"] = {"t": state["streams"]["t"]}
        directory.commit(state, directory.files().values())
    return path


def test_such_a_store_is_refused_with_the_way_out(path: Path) -> None:
    with pytest.raises(nile.StoreCorrupt, match=r"standing query 'all_s' reads; got: .*`nile store repair "):
        nile.connect(path)


def test_repair_says_what_it_would_do_and_does_it(path: Path) -> None:
    said = CliRunner().invoke(main, ["store", "repair", str(path)])
    assert said.exit_code == 1
    assert "would let go: standing query 'all_s'" in said.output
    with pytest.raises(nile.StoreCorrupt):
        nile.connect(path)
    done = CliRunner().invoke(main, ["store", "repair", "--yes", "--json", str(path)])
    assert done.exit_code == 0
    assert list(json.loads(done.output)["queries"]) == ["all_s"]
    (report,) = (path / "lost").glob("queries-*.json")
    assert json.loads(report.read_text())["all_s"]["text"] == "SELECT s.k AS k FROM s"
    with nile.connect(path) as db:
        assert db.subscriptions == ("all_t",)
        db.push("t", {"at": [3.0], "k": [3]})
        assert [row["k"] for batch in db.subscription("all_t") for row in batch.to_pylist()] == [1, 2]
    again = CliRunner().invoke(main, ["store", "repair", str(path)])
    assert (again.exit_code, "nothing to repair" in again.output) == (0, True)
