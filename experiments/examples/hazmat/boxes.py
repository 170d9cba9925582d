"""Boxes before detectors: rows of a table of sensors, each of which counts in bursts until it is told to stop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from nile.engine.database import Database
from nile.experiments.examples.hazmat.spectra import LIBRARY, LINES, prepared, rates
from nile.sensors.sensor import END, NEW_VALUE, Sensor

__all__ = ["BURST", "LONGEST", "Detector", "boxes", "database"]

BURST, LONGEST = 0.25, 8.0
"""Seconds of one exposure, and of all of a box."""
_BACKGROUND, _WEAK, _STRONG = 80.0, 15.0, 60.0
"""Counts per second."""


class Detector(Sensor):
    """Each read is one more burst of a box: the spectrum of all of them so far, prepared.

    address: "seed material", where "empty" is no material.
    """

    def init(self, address: Any, row: Mapping[str, Any]) -> None:  # noqa: ARG002
        seed, material = str(address).split()
        self._draw = np.random.default_rng(int(seed))
        self._rates = rates(None if material == "empty" else material, _BACKGROUND, self._draw.uniform(_WEAK, _STRONG))
        self._background = rates(None, _BACKGROUND, 0.0)
        self._counts = np.zeros(len(self._rates))
        self._seconds = 0.0

    def read(self) -> Any:
        if self._seconds >= LONGEST:
            return END
        self._seconds += BURST
        self._counts += self._draw.poisson(self._rates * BURST)
        return NEW_VALUE, prepared(self._counts, self._background * self._seconds).tolist()


def boxes(count: int, seed: int) -> list[str]:
    """What is in each box: half are empty, a fifth of the others hold what no library knows."""
    draw = np.random.default_rng(seed)
    unknown = [name for name in LINES if name not in LIBRARY]
    held = []
    for _ in range(count):
        kind = draw.random()
        held.append("empty" if kind < 0.5 else str(draw.choice(unknown if kind < 0.6 else LIBRARY)))
    return held


def database(held: list[str], seed: int) -> Database:
    """A table of detectors, a row for each box, and the library."""
    db = Database()
    db.sql(
        "CREATE SENSORS detectors (box INT, spectrum STREAM(net DOUBLE[]) "
        "USING 'nile.experiments.examples.hazmat.boxes:Detector')"
    )
    rows = [{"box": k, "spectrum": f"{seed * 1_000_003 + k} {material}"} for k, material in enumerate(held)]
    db.sensors("detectors").add(rows)
    none = np.zeros(len(rates(None, 0.0, 0.0)))
    patterns = [prepared(rates(name, 0.0, 1.0), none).tolist() for name in LIBRARY]
    db.register("materials", {"name": list(LIBRARY), "pattern": patterns})
    return db
