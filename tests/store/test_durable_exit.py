"""A process that ends while one of its threads pushes: the store opens whole."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import nile

_PUSHES = """
import sys, threading, time, nile
pushed = threading.Event()
def push(path):
    with nile.connect(path, checkpoint="0.01 s") as db:
        db.stream("s", [("t", "int64"), ("v", "int64")], time="t")
        db.subscribe("SELECT v FROM s", name="all")
        for k in range(10**9):
            rows = range(7 * k, 7 * k + 7)
            db.push("s", {"t": rows, "v": rows}, offset=k + 1)
            if db._live._keeper.directory.epoch > 5:
                pushed.set()
threading.Thread(target=push, args=[sys.argv[1]], daemon=True).start()
assert pushed.wait(120)
time.sleep(float(sys.argv[2]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("after", [0.0, 0.011])
def test_a_thread_that_pushes_may_be_stopped_by_the_end_of_the_interpreter(tmp_path: Path, after: float) -> None:
    """Daemon threads are stopped wherever they are: in the middle of a push, of a checkpoint, or between them."""
    path = tmp_path / "store"
    subprocess.run([sys.executable, "-c", _PUSHES, str(path), str(after)], check=True, timeout=300)
    with nile.connect(path) as db:
        whole = int(db.offset("s"))
        assert whole > 0
        assert [row[0] for row in db.sql("SELECT v FROM s").fetchall()] == list(range(7 * whole))
        db.push("s", {"t": range(7 * whole, 7 * whole + 7), "v": range(7)}, offset=whole + 1)
        db.advance(10**6 + 7 * whole)
        told = [row["v"] for _, batch in db.subscription("all").poll_numbered() for row in batch.to_pylist()]
        assert told == [*range(7 * whole), *range(7)]
