"""Processes in which a stream reads a connector into a store, for ever: `child_feed.py STORE KIND ADDRESS OUTPUTS`.

For each line of input one is forked, which says its number and then, again and again, how many rows are committed; when
it has been killed, `over` is said.  So a life costs no second of imports, and there may be many.

Outputs of a standing query are appended to a file with the query's name, epoch and their ordinals; without a file for
them nobody reads them, and they wait in the store.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa

import nile

FORMS = {
    "mqtt": "(t DOUBLE, n BIGINT) TIMESTAMP BY t EVENT ID n",  # what comes again has its time and number again
    "lines": "(n BIGINT, line TEXT)",
}
"""What follows the address; of the others `(n BIGINT)`."""
QUERIES = {"lines": "SELECT n, line FROM readings", "sensors": "SELECT n, line FROM readings"}
"""The standing query; of the others every thousandth row."""
USING = {"lines": "file"}


def say(what: object) -> None:
    """A line of output."""
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


def main() -> None:
    """A life a line."""
    with tempfile.TemporaryDirectory() as path, nile.connect(path, checkpoint=None) as db:  # imports, kernels
        db.stream("readings", [("t", pa.float64()), ("n", pa.int64())], time="t")
        query = db.subscribe("SELECT n FROM readings WHERE n % 1000 = 0", name="thousands")
        db.push("readings", {"t": [0.0, 1.0], "n": [0, 1]}, offset=1)
        db.checkpoint()
        query.poll_numbered()
    for _ in sys.stdin:
        life = os.fork()
        if life == 0:
            try:
                say(os.getpid())
                read(*sys.argv[1:])
            finally:
                os._exit(1)
        os.waitpid(life, 0)
        say("over")


def read(path: str, kind: str, address: str, outputs: str = "") -> None:
    """Read until killed."""
    with nile.connect(path, checkpoint=None, memory="16 MB") as db:
        if kind == "sensors":  # four files in a folder are rows of a table, which no store keeps
            db.sql("CREATE SENSORS files (id INT, path STREAM(n BIGINT, line TEXT) USING 'file') IDLE '50 ms'")
            db.sensors("files").add([{"id": k, "path": str(Path(address, str(k)))} for k in range(4)])
        if kind == "sensors" and "readings" not in db.streams:
            with db._live.lock:
                db.sql("CREATE STREAM readings FROM SENSORS files")
                db.subscribe(QUERIES[kind], name="thousands")
        if "readings" not in db.streams:
            form = FORMS.get(kind, "(n BIGINT)")
            with db._live.lock:  # the query sees the first row, too
                db.sql(f"CREATE STREAM readings FROM {USING.get(kind, kind)} '{address}' {form}")
                db.subscribe(QUERIES.get(kind, "SELECT n FROM readings WHERE n % 1000 = 0"), name="thousands")
        while db.sql("SELECT state FROM nile_sources WHERE name = 'readings'").fetchall() != [("open",)]:
            time.sleep(0.01)  # from then on a server keeps what comes for it
        query, total = db.subscription("thousands"), -1  # some may have come by now, which no checkpoint has
        while True:
            time.sleep(0.02)
            reached = db.accounting("readings").applied
            if reached == total:
                continue
            db.checkpoint()
            total = reached
            if outputs:
                with Path(outputs).open("a") as file:
                    for ordinal, batch in query.poll_numbered():
                        for k, n in enumerate(batch.column(0).to_pylist()):
                            file.write(json.dumps(["thousands", query.epoch, ordinal + k, n]) + "\n")
                    file.flush()
                    os.fsync(file.fileno())
            say(total)


if __name__ == "__main__":
    main()
