"""An interpreter that ends while Arrow reads a CSV file ahead, on a thread of its own that runs Python."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nile.streams.files import csv
from nile.streams.files.csv import CsvSource

CHILD = """
import sys, time
from nile.streams.files import csv

read = csv._Utf8.read

def slow(self, size):
    time.sleep(0.02)
    return read(self, size)

csv._Utf8.read, csv._BLOCK = slow, 1 << 12
source = csv.CsvSource(sys.argv[1])
batches = source.batches(["t"], 10)
next(batches)
if sys.argv[2] == "closed":
    batches.close()
sys.exit(3)
"""


@pytest.mark.parametrize("how", ["held", "closed"])
def test_the_interpreter_ends_in_the_middle_of_a_file(tmp_path: Path, how: str) -> None:
    """It aborted (status 134), or hung."""
    path = tmp_path / "s.csv"
    path.write_text("t,k\n" + "".join(f"{i},{i % 7}\n" for i in range(20_000)))
    run = subprocess.run([sys.executable, "-c", CHILD, str(path), how], capture_output=True, timeout=60, check=False)
    assert (run.returncode, run.stderr) == (3, b"")


def test_nobody_reads_a_file_that_was_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "s.csv"
    path.write_text("t,k\n" + "".join(f"{i},{i % 7}\n" for i in range(20_000)))
    monkeypatch.setattr(csv, "_BLOCK", 1 << 12)
    source = CsvSource(path)
    assert not csv._OPEN
    batches = source.batches(["t"], 10)
    next(batches)
    assert len(csv._OPEN) == 1
    batches.close()  # type: ignore[attr-defined]
    assert not csv._OPEN
    assert sum(len(batch.batch) for batch in source.batches(["t"], 1_000)) == 20_000


def test_an_interrupt_while_arrow_looks_at_a_row_is_no_fault_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The handler of malformed rows was interrupted, which Arrow told as a row of too few columns."""
    read = csv._Utf8.read

    def interrupted(self: csv._Utf8, size: int) -> bytes:
        given = read(self, size)
        if csv._END.encode() in given:
            signal.raise_signal(signal.SIGINT)  # of Arrow's thread: it is handled when the main one runs Python next
        return given

    path = tmp_path / "s.csv"
    path.write_text("t,k\n" + "".join(f"{i},{i % 7}\n" for i in range(20_000)))
    source = CsvSource(path)
    monkeypatch.setattr(csv._Utf8, "read", interrupted)
    for _ in range(10):
        with pytest.raises(KeyboardInterrupt):
            list(source.batches(["t"], 1000))
