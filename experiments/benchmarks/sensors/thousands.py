"""Tables of sensors: what ten thousand sources cost to read, and a burst that a query cannot follow."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from nile.engine.database import Database
from nile.experiments.benchmarks.harness import Measure, Result, benchmark
from nile.sensors.sensor import END, NEW_VALUE, Sensor

__all__ = ["sensors"]

_SOURCES, _RATE, _SECONDS = 10_000, 10, 8
_BURST, _DRAIN, _TOGETHER, _PAYLOAD = 20.0, 4_000, 1_000, "x" * 50
TITLE = f"{_SOURCES:,} sources at {_RATE} values per second each, and a burst of ten times what is read"


class Ticking(Sensor):
    """A value every tenth of a second."""

    every = 1 / _RATE

    def init(self, address: Any, row: Any) -> None:  # noqa: ARG002
        self.count = 0.0

    def read(self) -> Any:
        self.count += 1.0
        return NEW_VALUE, self.count


class Bursting(Sensor):
    """Ten thousand values a second, numbered, for 20 s."""

    every = 0.1
    batch = True

    def init(self, address: Any, row: Any) -> None:  # noqa: ARG002
        self.count = 0
        self.until = time.monotonic() + _BURST

    def read(self) -> Any:
        if time.monotonic() >= self.until:
            return END
        self.count += _TOGETHER
        return NEW_VALUE, [(float(k), _PAYLOAD) for k in range(self.count - _TOGETHER, self.count)]


@benchmark("sensors", TITLE)
def sensors() -> Result:
    """Process CPU over eight seconds of wall time; the burst against what each source says that it gave."""
    cores, rows = _steady()
    lost, misplaced, given = _burst()
    return Result(
        name="sensors",
        title=TITLE,
        unit="tuples",
        work=_SOURCES * _RATE * _SECONDS,
        timings=(),
        measures=(
            Measure("cores busy", cores, "", 1.0, most=True, about="one query on static and dynamic columns"),
            Measure("CPU per tuple", 1e6 * cores / rows, "us", None, about="of the whole process, sources included"),
            Measure("tuples per second", rows, "", 0.95 * _SOURCES * _RATE),
            Measure("tuples of the burst lost", lost, "", 0.0, most=True, about=f"of {given:,}, through 4 MB"),
            Measure("tuples of the burst out of order", misplaced, "", 0.0, most=True),
        ),
    )


def _steady() -> tuple[float, float]:
    """(cores busy, tuples per second)."""
    db = Database()
    db.sql("CREATE SENSORS d (id INT, place TEXT, v STREAM(reading DOUBLE) USING 'Ticking')")
    numbers = range(_SOURCES)
    places = [f"p{k % 10}" for k in numbers]
    db.sensors("d").add({"id": list(numbers), "place": places, "v": [str(k) for k in numbers]})
    batches = iter(db.sql("SELECT id, place, reading FROM d WHERE place <> 'none' AND reading > 0"))
    next(batches)
    begun, busy, rows = time.monotonic(), time.process_time(), 0
    while time.monotonic() - begun < _SECONDS:
        rows += next(batches).num_rows
    took = time.monotonic() - begun
    cores = (time.process_time() - busy) / took
    batches.close()  # type: ignore[attr-defined]
    return cores, rows / took


def _burst() -> tuple[int, int, int]:
    """(tuples lost, tuples out of the order of their source, tuples given)."""
    db = Database()
    db.sql("CREATE SENSORS d (id INT, v STREAM(reading DOUBLE, t TEXT) USING 'Bursting') BUFFER '4 MB'")
    db.sensors("d").add({"id": list(range(4))})
    got: Counter[int] = Counter()
    misplaced = read = 0
    begun = time.monotonic()
    for batch in db.sql("SELECT id, reading, t FROM d"):
        for source, value in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
            misplaced += value != got[source]
            got[source] += 1
        read += batch.num_rows
        passed = time.monotonic() - begun
        if passed < _BURST:  # as slowly as it is meant to be read
            time.sleep(max(0.0, min(read / _DRAIN, _BURST) - passed))
    given = sum(db.sensors("d").sources().column("tuples_in").to_pylist())
    return given - read, misplaced, given
