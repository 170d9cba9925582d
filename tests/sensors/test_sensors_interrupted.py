"""Ctrl-C at places of a query over sensors: no source runs on, and the next query finds every value once."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections import Counter
from typing import Any, ClassVar

import pytest

import nile
from nile import END, NEW_VALUE
from nile.experiments.faults.places import at_place

_SOURCES, _VALUES = 4, 6
_PATIENCE = 60.0


class Counted(nile.Sensor):
    """_VALUES values, always from the beginning; how many of these are begun and closed."""

    lock = threading.Lock()
    begun: ClassVar[Counter[str]] = Counter()
    closed: ClassVar[Counter[str]] = Counter()

    def init(self, address: Any, _: Any) -> None:
        self.address, self.left = address, 0
        with self.lock:
            Counted.begun[address] += 1

    def read(self) -> Any:
        if self.left == _VALUES:
            return END
        self.left += 1
        return NEW_VALUE, 10 * int(self.address) + self.left

    def close(self) -> None:
        with self.lock:
            Counted.closed[self.address] += 1


def _ask(db: nile.Database) -> list[int]:
    return sorted(n for (n,) in db.sql("SELECT n FROM d").fetchall())


def _interrupted_at(place: int | None) -> int:
    Counted.begun.clear()
    Counted.closed.clear()
    with nile.connect() as db:
        db.sql(f"CREATE SENSORS d (id INT, v STREAM(n BIGINT) USING '{__name__}:Counted') LATENESS '1 day'")
        db.sensors("d").add([{"id": k, "v": str(k)} for k in range(_SOURCES)])
        places = 0
        with contextlib.suppress(KeyboardInterrupt):
            places = at_place(lambda: _ask(db), place, lambda: signal.raise_signal(signal.SIGINT))
        until = time.monotonic() + _PATIENCE
        while Counted.begun != Counted.closed:
            assert time.monotonic() < until, f"place {place}: {Counted.begun} begun, {Counted.closed} closed"
            time.sleep(0.005)
        found: list[list[int]] = []
        asking = threading.Thread(target=lambda: found.append(_ask(db)), daemon=True)
        asking.start()
        asking.join(_PATIENCE)
        assert found == [[10 * k + n for k in range(_SOURCES) for n in range(1, _VALUES + 1)]], f"place {place}"
    return places


@pytest.mark.parametrize("tries", [8, pytest.param(40, marks=pytest.mark.slow)])
def test_ctrl_c_at_some_places_leaves_no_source_and_no_query_that_waits_forever(tries: int) -> None:
    places = _interrupted_at(None)
    assert places > 1000
    for place in range(11, places, max(1, places // tries)):
        _interrupted_at(place)


@pytest.mark.long
def test_ctrl_c_at_every_fifth_place_leaves_no_source_and_no_query_that_waits_forever() -> None:
    for place in range(0, _interrupted_at(None), 5):
        _interrupted_at(place)
