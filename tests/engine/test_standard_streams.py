"""Standard streams of the `nile` command: closed, full, of few characters."""

from __future__ import annotations

import io
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import nile
from nile.experiments.faults.scoring import attempted
from nile.experiments.faults.surface.streams import FAULT, SITUATIONS
from nile.shell import Shell
from nile.spark.ingesting.inputs import check_there


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(len(SITUATIONS)), ids=SITUATIONS)
def test_a_statement_ends_with_a_sentence_and_a_status_whatever_its_streams_are(seed: int) -> None:
    assert attempted(FAULT, [seed]).failed == []


def test_a_table_on_an_output_of_ascii_has_lines_and_says_what_it_cannot_show() -> None:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii", errors="backslashreplace")
    db = nile.connect().register("s", {"k": ["caf\u00e9"]})
    assert Shell(db, out, io.StringIO()).line("SELECT k FROM s;")
    out.flush()
    told = raw.getvalue().decode("ascii")
    assert "caf\\xe9" in told
    assert "\\u25" not in told
    assert "+---" in told


@pytest.mark.parametrize("source", ["missing.csv", "nowhere/sales", "sales-*.parquet", "missing", "shop.sales"])
def test_a_file_that_is_not_there_is_told_before_a_session_is_started(
    source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nile.spark.ingesting.ingest.would_be_empty", lambda: True)  # a test before may have begun one
    began = time.perf_counter()
    with pytest.raises(nile.SourceMissing):
        nile.spark.ingest(source, "lake", stream="s", time="t", key="k")
    assert time.perf_counter() - began < 5.0
    check_there("shop.sales")  # may be a table


@pytest.mark.parametrize(("said", "asked"), [
    ({"time": "never"}, "no column 'never'"), ({"key": "never"}, "no column 'never'"),
    ({"schema": {"t": "dubble"}}, "did you mean 'double'"), ({"event_id": "never"}, "no column 'never'"),
    ({"time": None}, "needed the time column"), ({"drift": {"added": "nonsense"}}, "added"),
])  # fmt: skip
@pytest.mark.parametrize("form", ["csv", "parquet", "json"])
def test_columns_that_are_not_there_are_told_before_a_session_is_started(
    said: dict[str, Any], asked: str, form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nile.spark.ingesting.ingest.spark_session", lambda: pytest.fail("it was started"))
    rows = nile.connect().register("r", {"t": [1, 2], "k": [3, 4]}).sql("SELECT t, k FROM r")
    file = tmp_path / f"rows.{form}"
    if form == "json":
        file.write_text('{"t": 1, "k": 3}\n{"t": 2, "k": 4}\n')
    else:
        (rows.write_csv if form == "csv" else rows.write_parquet)(file)
    with pytest.raises(nile.NileError, match=asked):
        nile.spark.ingest(file, tmp_path / "lake", **{"stream": "s", "time": "t", "key": "k", **said})
    assert not (tmp_path / "lake").exists()


@pytest.fixture
def plain() -> Iterator[None]:
    """Ctrl-C as Python answers it: a session of Spark that a test before began has put its own answer in place."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("plain")
def test_ctrl_c_while_a_compiled_module_loads_is_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a module raises what it likes where it is interrupted; without an interrupt that is no Ctrl-C."""
    is_interrupted = True

    def loads(*_: Any, **__: Any) -> Any:
        try:
            if is_interrupted:
                signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            pass
        raise AttributeError("partially initialized module")

    db, told = nile.connect(), io.StringIO()
    monkeypatch.setattr(type(db), "sql", loads)
    shell = Shell(db, io.StringIO(), told)
    shell.line("SELECT 1;")
    assert told.getvalue() == "stopped\n"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    is_interrupted = False
    with pytest.raises(AttributeError):
        shell.line("SELECT 1;")
