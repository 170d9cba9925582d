"""Times from anywhere: negative, zero, the ends of int64, year 9999, all units and zones, clocks that step back."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np

from nile.base.times import TIME_LIMIT
from nile.engine.database import Database
from nile.experiments.faults.fault import Fault, expect, generator
from nile.experiments.faults.memory import MB, bounded
from nile.summaries.errors import ConfigError
from nile.summaries.heavy import pa

__all__ = ["FAULT"]

_NAME = "times"
_UNITS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_ZONES = (None, "UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "+05:45")
_SPRING, _FALL = 1_711_846_800, 1_729_990_800
"""Seconds: when clocks in Berlin were put forward and back in 2024."""
_YEAR_9999, _YEAR_1 = 253_402_300_799, -62_135_596_800
_TEXTS = {
    "2024-03-31T02:30:00+01:00": 1_711_848_600 * 10**9,
    "2024-10-27 02:30:00+02:00": 1_729_989_000 * 10**9,
    "1969-12-31 23:59:59.999999999": -1,
    "1970-01-01": 0,
    "9999-12-31": None,
    "0001-01-01": None,
    "yesterday": None,
    "": None,
    "1e300": None,
    "-1.5": -1_500_000_000,
}
_TOUCHED, _CLAIMED = 48 * MB, 3_000 * MB


def attempt(seed: int) -> None:
    """Push such times to a stream that has a summary and a standing query; every row is accepted, late or rejected."""
    _check(seed, lambda column: column)


def control(seed: int) -> None:
    """The same, where each time was moved by a tick on the way."""

    def moved(column: Any) -> Any:
        kind = column.type
        if pa.types.is_string(kind):
            return pa.array(["1970-01-01 00:00:07"] * len(column))
        return (
            pa.array([7] * len(column), pa.int64()).cast(kind)
            if not pa.types.is_date(kind)
            else pa.nulls(len(column), kind)
        )

    _check(seed, moved)


@cache
def _warm() -> None:
    """Load what a first use loads, which is no memory of an attempt."""
    _check(-1, lambda column: column, 10**12)


def _check(seed: int, column: Any, touched: int = _TOUCHED) -> None:
    if seed >= 0:
        _warm()
    rng = generator(_NAME, abs(seed))
    kind, values, exact = _column(rng)
    lateness = int(rng.choice([1, 10**9, 86_400 * 10**9, 2**60]))
    accepted, late, rejected = _oracle(exact, lateness)
    with Database() as db, bounded(touched, _CLAIMED):
        db.stream("s", [("t", kind), ("n", pa.int64())], time="t", lateness=f"{lateness} ns")
        db.sql("CREATE SUMMARY made ON s (n) WITH GRANULARITY '1 s' AND COLLAPSE (4, 3)")
        standing = db.subscribe("SELECT count(*) AS n FROM s [RANGE '1 s']")
        cut = int(rng.integers(0, len(values) + 1))
        passed: list[int] = []
        stream = db._live.get("s")
        for begin, end in ((0, cut), (cut, len(values))):
            batch = column(pa.array(values[begin:end], kind))
            db.push("s", pa.table([batch, pa.array(range(begin, end), pa.int64())], names=["t", "n"]))
            passed.append(-TIME_LIMIT if stream.passed is None else stream.passed)
        told = db.accounting("s")
        waiting = len(accepted) - told.applied
        expect(waiting >= 0, f"{told.applied} applied of {len(accepted)}")
        for now in (6e9, 1.0, -6e9, "2150-01-01", 6.9e9):  # a wall clock that steps back
            try:
                db.advance(now)
            except ConfigError as error:
                raise AssertionError(f"advance({now}): {error}") from error
            passed.append(-TIME_LIMIT if stream.passed is None else stream.passed)
        expect(passed == sorted(passed), f"the watermark went back: {passed}")
        with db._live.lock:
            stream.close()
        told = db.accounting("s")
        told.check()
        expect((told.late, told.rejected) == (late, rejected), f"{told}, must be {late} late and {rejected} rejected")
        found = np.concatenate([ts for ts, _ in stream.kept(["n"])] or [np.zeros(0, np.int64)])
        expect(found.shape[0] == len(accepted), f"{found.shape[0]} rows are kept of {len(accepted)}")
        off = np.abs(found.astype(object) - np.array(sorted(accepted), object))
        expect(max(off.tolist(), default=0) <= (1 if pa.types.is_floating(kind) else 0), f"times are off by {off}")
        standing.poll()


def _oracle(exact: list[int | None], lateness: int) -> tuple[list[int], int, int]:
    """Accepted times in ns, how many are late, how many rejected."""
    accepted: list[int] = []
    late = rejected = 0
    for at in exact:
        if at is None or abs(at) > TIME_LIMIT:
            rejected += 1
        elif accepted and at < max(accepted) - lateness:
            late += 1
        else:
            accepted.append(at)
    return accepted, late, rejected


def _column(rng: np.random.Generator) -> tuple[Any, list[Any], list[int | None]]:
    """A type, values of it, and the instant of each in ns, None for what is no time."""
    n = int(rng.integers(8, 40))
    which = int(rng.integers(5))
    edges = [0, 1, -1, 2**63 - 1, -(2**63) + 1, -(2**63), 2**62, -(2**62), 2**31, 2**53 + 1]
    if which == 0:
        unit, zone = str(rng.choice(list(_UNITS))), _ZONES[int(rng.integers(len(_ZONES)))]
        size = _UNITS[unit]
        edges += [s * 10**9 // size for s in (_SPRING, _SPRING - 1, _FALL, _FALL + 3600)]
        edges += [limit // size for limit in (TIME_LIMIT, TIME_LIMIT + size, -TIME_LIMIT, -TIME_LIMIT - size)]
        edges += [s * 10**9 // size for s in (_YEAR_9999, _YEAR_1) if abs(s * 10**9 // size) < 2**63]
        values = _some(rng, edges, n)
        return pa.timestamp(unit, zone), values, [None if v is None else v * size for v in values]
    if which == 1:
        values = _some(rng, [*edges, _YEAR_9999, _YEAR_1, _SPRING, TIME_LIMIT // 10**9, TIME_LIMIT // 10**9 + 1], n)
        return pa.int64(), values, [None if v is None else v * 10**9 for v in values]
    if which == 2:
        floats = [0.0, -0.0, 1e-9, -1e-9, 1e300, -1e300, float("nan"), float("inf"), float("-inf"), 5e-324, 1.5, -2.25,
                  float(_SPRING), float(_YEAR_9999), 6.9e9]  # fmt: skip
        values = _some(rng, floats, n)
        finite = [v if v is not None and abs(v) < 1e290 else None for v in values]
        return pa.float64(), values, [None if v is None else round(Fraction(v) * 10**9) for v in finite]
    if which == 3:
        days = _some(rng, [0, 1, -1, 2**31 - 1, -(2**31), 2_932_896, -719_162, 19_813, 20_000, 60_000, 80_000], n)
        return pa.date32(), days, [None if v is None else v * 86_400 * 10**9 for v in days]
    texts = _some(rng, list(_TEXTS), n)
    return pa.string(), texts, [None if v is None else _TEXTS[v] for v in texts]


def _some(rng: np.random.Generator, values: list[Any], n: int) -> list[Any]:
    chosen = [values[i] for i in rng.integers(0, len(values), n).tolist()]
    chosen[n // 2] = None
    return chosen


FAULT = Fault(
    _NAME, "negative, 0, +-2**63-1, year 9999, mixed units, DST, a wall clock that steps back",
    "accepted, or rejected with a reason; no huge allocation; the watermark never falls", attempt, control,
    full=10_000, small=60,
)  # fmt: skip
