"""Processes in which a sink sends numbers from a store, for ever: `child_sink.py STORE SINK ADDRESS`.

For each line of input one is forked, which says its number and then how many rows are committed, again and again; when
it has been killed, `over` is said.  A line `last` has it push nothing more, and say `sent` once all are there.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time

import pyarrow as pa
from child_feed import say

import nile

EACH = 250


def main() -> None:
    """A life a line."""
    with tempfile.TemporaryDirectory() as path, nile.connect(path, checkpoint=None) as db:  # imports, kernels
        db.stream("numbers", [("t", pa.float64()), ("n", pa.int64())], time="t")
        db.subscribe("SELECT n FROM numbers", name="all")
        db.push("numbers", {"t": [0.0, 1.0], "n": [0, 1]}, offset=1)
        db.checkpoint()
    for line in sys.stdin:
        life = os.fork()
        if life == 0:
            try:
                say(os.getpid())
                send(*sys.argv[1:], last=line.strip() == "last")
            finally:
                os._exit(1)
        os.waitpid(life, 0)
        say("over")


def send(path: str, using: str, address: str, *, last: bool) -> None:
    """Push numbers in their order, until killed."""
    with nile.connect(path, checkpoint=None) as db:
        if "numbers" not in db.streams:
            db.stream("numbers", [("t", pa.float64()), ("n", pa.int64())], time="t", stamp=False)
            db.sql(f"CREATE SINK alarms TO {using} '{address}' AS SELECT n FROM numbers WHERE n % 3 = 0")
        while not last:
            at = db.offset("numbers")
            numbers = list(range(at, at + EACH))
            db.push("numbers", {"t": [float(n) for n in numbers], "n": numbers}, offset=at + EACH)
            db.advance(at + EACH, "numbers")
            db.checkpoint()
            say(at + EACH)
        while db.sql("SELECT unread FROM nile_sinks").fetchall() != [(0,)]:
            time.sleep(0.01)
        db.checkpoint()
        say("sent")
        time.sleep(60)


if __name__ == "__main__":
    main()
