"""Processes that move what a connector reads into a store, for ever: `child_feed.py STORE KIND ADDRESS OUTPUTS`.

For each line of input one is forked, which says its number and then, again and again, how many rows are committed; when
it has been killed, `over` is said.  So a life costs no second of imports, and there may be many.

Each read is pushed with the place that it reached, and committed before the next one, which acknowledges it.  Outputs
of a standing query are appended to a file with the query's name, epoch and their ordinals.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

import nile
from nile.sensors.connectors import kafka, mqtt, postgres, redis

SOURCES: dict[str, Any] = {
    "kafka": kafka.Topic,
    "mqtt": mqtt.Topic,
    "postgres": postgres.InsertedRows,
    "redis": redis.RedisStream,
}


def told(place: Any) -> Any:
    """A place as JSON has it."""
    if isinstance(place, dict):
        return {str(each): at for each, at in place.items()}
    return place.decode() if isinstance(place, bytes) else place


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


def read(path: str, kind: str, address: str, outputs: str) -> None:
    """Read until killed."""
    with nile.connect(path, checkpoint=None) as db, Path(outputs).open("a") as file:
        try:
            db.offset("readings")
        except nile.NileError:
            db.stream("readings", [("t", pa.float64()), ("n", pa.int64())], time="t")
        try:
            query = db.subscription("thousands")
        except nile.NileError:
            query = db.subscribe("SELECT n FROM readings WHERE n % 1000 = 0", name="thousands")
        total = db.accounting("readings").applied
        place: Any = db.offset("readings") if total else None
        last = place if kind == "mqtt" and place is not None else -1
        source = SOURCES[kind]()
        source.fields = pa.schema([("n", pa.int64())])
        if kind != "mqtt":  # the broker knows what was acknowledged; what comes again is known by its number
            source.place = {int(each): at for each, at in place.items()} if isinstance(place, dict) else place
        source.init(address, {})
        say(total)
        while True:
            if kind == "mqtt":
                time.sleep(0.05)  # one by one they come, and a commit for each would take long
            found = source.read()
            values = (
                [each["n"] if isinstance(each, dict) else each for each in found[1]] if type(found) is tuple else []
            )
            numbers = [n for n in values if kind != "mqtt" or n > last]
            if not numbers:
                time.sleep(0.01)
                continue
            last = numbers[-1]
            rows = {"t": [float(total + k) for k in range(len(numbers))], "n": numbers}
            db.push("readings", rows, offset=last if kind == "mqtt" else told(source.place))
            db.checkpoint()
            for ordinal, batch in query.poll_numbered():
                for k, n in enumerate(batch.column(0).to_pylist()):
                    file.write(json.dumps(["thousands", query.epoch, ordinal + k, n]) + "\n")
            file.flush()
            os.fsync(file.fileno())
            total += len(numbers)
            say(total)


if __name__ == "__main__":
    main()
