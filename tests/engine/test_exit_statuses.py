"""Exit statuses of the `nile` command: 1 failed while it ran, 2 cannot be done as asked, 130 stopped."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import nile
from nile.base.status import FAILED, STOPPED, WRONG, status_of
from nile.experiments.cli import main
from nile.summaries import errors

DOCS = Path(__file__).parents[2] / "docs/operations.md"
KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.NileError)]


def status(*arguments: Any, text: str | None = None) -> int:
    told = CliRunner().invoke(main, list(map(str, arguments)), input=text)
    assert "Traceback" not in told.output
    return told.exit_code


@pytest.fixture
def csv(tmp_path: Path) -> Path:
    (tmp_path / "rows.csv").write_text("t,k\n1,a\n2,b\n")
    return tmp_path / "rows.csv"


def test_what_is_done_is_0(csv: Path) -> None:
    assert status("sql", f"CREATE STREAM s FROM '{csv}' TIMESTAMP BY t; SELECT k FROM s") == 0
    assert status("run", "--example") == 0


@pytest.mark.parametrize("arguments", [
    ["nonsense"], ["sql", "--format", "nonsense"], ["sql", "SELEC 1"], ["sql", "SELECT k FROM nobody"],
    ["sql", "--file", "missing.sql"], ["run", "missing.toml"], ["store", "info", "missing"],
    ["store", "check", "missing"], ["sql", "CREATE STREAM s FROM 'missing.csv' TIMESTAMP BY t"],
    ["ingest", "missing.csv", "lake", "--stream", "s"], ["ingest", "missing.csv", "lake"], ["report", "SELEC"],
    ["bench", "nonsense"], ["experiment", "run", "nonsense"],
])  # fmt: skip
def test_what_cannot_be_done_as_asked_is_2(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("nile.spark.ingesting.ingest.would_be_empty", lambda: True)
    assert status(*arguments) == WRONG
    assert status("sql", text="SELEC 1;") == WRONG


def test_what_fails_while_it_runs_is_1(csv: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    with nile.connect(store) as db:
        db.stream("s", [("t", "int64"), ("k", "string")], time="t")
        db.push("s", {"t": [1], "k": ["a"]})
        db.checkpoint()
        assert status("sql", store, "SELECT k FROM s") == FAILED  # another one writes to it
    assert status("sql", store, "SELECT k FROM s") == 0
    text = "SELECT sum(n) AS n FROM (SELECT 9223372036854775807 AS n FROM s UNION ALL SELECT 9 AS n FROM s) q"
    assert status("sql", f"CREATE STREAM s FROM '{csv}' TIMESTAMP BY t; {text}") == FAILED
    assert status("sql", text=f"CREATE STREAM s FROM '{csv}' TIMESTAMP BY t; {text};") == FAILED
    for file in (store / "data").iterdir():
        file.write_bytes(file.read_bytes()[:-1] + b"?")
    assert status("store", "check", store) == FAILED


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_error_ends_a_command_and_a_shell_alike(
    kind: type[nile.NileError], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> Iterator[Any]:
        raise kind("needed one thing; got another")

    wanted = status_of(kind("needed one thing; got another"))
    monkeypatch.setattr("nile.engine.database.Database.sql", fails)
    assert status("sql", "SELECT 1") == wanted
    monkeypatch.setattr("nile.experiments.benchmarks.command.list_benchmarks", fails)
    assert status("bench") == wanted
    told = re.search(r"^\| 1 \| (.*)$", DOCS.read_text(), re.MULTILINE)
    assert told is not None
    assert (wanted == FAILED) == (f"`{kind.__name__}`" in told[1])


def test_ctrl_c_is_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("nile.engine.database.Database.sql", stopped)
    assert status("sql", "SELECT 1") == STOPPED
    monkeypatch.setattr("nile.experiments.benchmarks.command.list_benchmarks", stopped)
    assert status("bench") == STOPPED
