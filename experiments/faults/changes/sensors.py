"""Sources that raise, hang, end threads, tell rubbish, and readers that are interrupted: each value comes once.

Every source says how far it has read (`place`), so that the instance that follows a failed one goes on from there.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

import nile
from nile import END, NEW_VALUE, NO_VALUE
from nile.experiments.faults.fault import Fault, Wrong, expect, generator
from nile.experiments.faults.places import at_place

__all__ = ["SENSORS"]

_VALUES = 12
_SOURCES = 6
_PATIENCE = 60.0  # s: a machine may be busy
_HANG = 1.0  # s


class _Own(BaseException):
    """No Exception, and of nobody's."""


def _raises(error: type[BaseException]) -> Callable[[], Any]:
    def fail() -> Any:
        raise error("of a source")

    return fail


def _hangs() -> Any:
    time.sleep(_HANG)
    return NEW_VALUE, 666


_TROUBLE: dict[str, Callable[[], Any] | None] = {
    "none": None,
    "value": _raises(ValueError),
    "key": _raises(KeyboardInterrupt),
    "exit": _raises(SystemExit),
    "memory": _raises(MemoryError),
    "own": _raises(_Own),
    "stop": _raises(StopIteration),
    "hang": _hangs,
    "wait": lambda: NO_VALUE,
    "rubbish": lambda: ("news", 666),
    "text": lambda: (NEW_VALUE, "six"),
    "init": None,
    "close": None,
}


class _Troubled(nile.Sensor):
    """At "number trouble at": values number * 1000 + 0, 1, ...; before the one of number `at` trouble comes, once."""

    timeout = 0.15
    lock = threading.Lock()
    made: ClassVar[Counter[int]] = Counter()
    ended: ClassVar[Counter[int]] = Counter()
    had: ClassVar[set[str]] = set()
    keeps = True

    def init(self, address: Any, _: Any) -> None:
        number, self.trouble, at = address.split()
        self.number, self.at = int(number), int(at)
        self.left = self.place if self.place is not None and self.keeps else 0
        with self.lock:
            _Troubled.made[id(self)] += 1
            kept.append(self)
        if self.trouble == "init" and self.first():
            raise OSError("nobody is there yet")

    def first(self) -> bool:
        """Whether this source has had no trouble yet."""
        with self.lock:
            new = f"{self.number}" not in _Troubled.had
            _Troubled.had.add(f"{self.number}")
        return new

    def read(self) -> Any:
        if self.left == self.at and (trouble := _TROUBLE[self.trouble]) is not None and self.first():
            return trouble()
        if self.left == _VALUES:
            return END
        value = self.number * 1000 + self.left
        self.left += 1
        self.place = self.left
        return NEW_VALUE, value

    def close(self) -> None:
        with self.lock:
            _Troubled.ended[id(self)] += 1
        if self.trouble == "close" and self.first():
            raise ValueError("of a close")


class _Forgetful(_Troubled):
    """One that begins anew each time, as a source without a place does."""

    keeps = False


kept: list[_Troubled] = []
"""All instances of an attempt: none takes the identity of another."""


def _attempt(seed: int) -> None:
    _tried(seed, "_Troubled", None)


def _control(seed: int) -> None:
    """Sources that fail, and begin anew."""
    _tried(seed, "_Forgetful", "value")


def _tried(seed: int, kind: str, trouble: str | None) -> None:
    rng = generator("sensors", seed)
    kept.clear()
    for told in (_Troubled.made, _Troubled.ended, _Troubled.had):
        told.clear()
    db = nile.connect()
    try:
        db.sql(f"CREATE SENSORS d (id INT, v STREAM(n BIGINT) USING '{kind}') LATENESS '1 day'")
        troubles = [trouble or str(each) for each in rng.choice(list(_TROUBLE), _SOURCES)]
        places = rng.integers(1, _VALUES, _SOURCES).tolist()
        rows = [{"id": k, "v": f"{k} {troubles[k]} {places[k]}"} for k in range(_SOURCES)]
        told_of = ", ".join(str(row["v"]) for row in rows)
        _added(db, rows, rng)
        (_standing if seed % 2 or trouble else _asked)(db, rng, told_of)
    finally:
        db.close()
    _closed(told_of)


def _added(db: Any, rows: list[dict[str, Any]], rng: np.random.Generator) -> None:
    """Rows of the table, whose adding is interrupted: all of it, or nothing."""
    _cut(lambda: db.sensors("d").add(rows[:3]), rng, 300)
    there = len(db.sensors("d"))
    expect(there in (0, 3), f"{there} rows of 3 were added")
    db.sensors("d").add(rows[there:])


def _cut(action: Callable[[], Any], rng: np.random.Generator, places: int) -> None:
    """Do something, and press Ctrl-C at one of its first places."""
    with contextlib.suppress(KeyboardInterrupt):
        at_place(action, int(rng.integers(places)), lambda: signal.raise_signal(signal.SIGINT), ("changes/sensors.py",))


def _expected() -> Counter[int]:
    return Counter(k * 1000 + at for k in range(_SOURCES) for at in range(_VALUES))


def _standing(db: Any, rng: np.random.Generator, told_of: str) -> None:
    """A standing query, made under Ctrl-C and beside one whose callback raises, finds each value once."""
    text = "SELECT id, n FROM d"
    _cut(lambda: db.subscribe(text).close(), rng, 3_000)
    _Troubled.had.clear()  # what was cut may have begun
    bad = db.subscribe(text, lambda _: _raises((ValueError, KeyboardInterrupt)[int(rng.integers(2))])())
    good = db.subscribe(text)
    found: Counter[int] = Counter()
    end = time.monotonic() + _PATIENCE
    while not (good.closed and not good.unread):
        expect(time.monotonic() < end, f"{told_of}: the query never ends")
        found.update(row["n"] for batch in good.poll() for row in batch.to_pylist())
        time.sleep(0.005)
    _compared(found, _expected(), told_of)
    with contextlib.suppress(ValueError, KeyboardInterrupt):
        bad.poll()
    _counted(db, told_of)


def _asked(db: Any, rng: np.random.Generator, told_of: str) -> None:
    """A query that is interrupted while it reads leaves nothing behind; asked again it finds each value once."""
    ask = db.sql("SELECT id, n FROM d").fetchall
    timer = threading.Timer(float(rng.uniform(0.0, 0.3)), signal.pthread_kill, (threading.main_thread().ident, 2))
    with contextlib.suppress(KeyboardInterrupt):
        timer.start()
        ask()
        timer.join()
        time.sleep(0.01)
    timer.join()
    _closed(told_of)
    _Troubled.had.clear()
    _compared(Counter(n for _, n in db.sql("SELECT id, n FROM d").fetchall()), _expected(), told_of)
    _counted(db, told_of)


def _compared(found: Counter[int], must: Counter[int], told_of: str) -> None:
    lost, more = must - found, found - must
    expect(not lost and not more, f"{told_of}: lost {sorted(lost.elements())}, too many {sorted(more.elements())}")


def _counted(db: Any, told_of: str) -> None:
    for row in db.sensors("d").sources().to_pylist():
        whole = row["applied"] + row["late"] + row["shed"] + row["rejected"]
        expect(row["tuples_in"] == whole, f"{told_of}: {row}")


def _closed(told_of: str) -> None:
    """Each instance is closed once, those too that hung."""
    end = time.monotonic() + _PATIENCE
    while _Troubled.made != _Troubled.ended:
        if time.monotonic() > end:
            raise Wrong(f"{told_of}: {len(_Troubled.made)} instances, closes {sorted(_Troubled.ended.values())}")
        time.sleep(0.01)


SENSORS = Fault(
    "sensors", f"{_SOURCES} sources each that raise, hang, tell rubbish; interrupted readers",
    "each value once; each source closed", _attempt, _control, full=300, small=2,
)  # fmt: skip
