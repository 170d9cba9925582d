"""Simulated electrocardiograms: waves of each beat as bumps, a rate that breathes, ectopic beats, drift and noise.

Source: McSharry and others, "A dynamical model for generating synthetic electrocardiogram signals" (2003): a beat is
a sum of bumps at the places of P, Q, R, S and T; here they are laid out in time, and the next beat is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from nile.engine.database import Database
from nile.sensors.sensor import END, NEW_VALUE, Sensor

__all__ = ["RATE", "Electrodes", "Record", "database", "record"]

RATE = 200
"""Samples per second."""
_STEP = RATE // 4  # of one read
# Of each wave: when (s from R), how high, how wide (s).
_NORMAL = ((-0.20, 0.15, 0.025), (-0.03, -0.12, 0.010), (0.0, 1.0, 0.012), (0.03, -0.22, 0.010), (0.28, 0.28, 0.045))
_ECTOPIC = ((0.0, 1.25, 0.035), (0.09, -0.45, 0.040), (0.30, -0.25, 0.060))
_EARLY, _LATE = 0.62, 1.38  # an ectopic beat after so much of an interval, and the next one after so much more
_BREATH, _SWING, _JITTER = 4.0, 0.03, 0.008

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Record:
    """One heart.  level: a sample every 1/RATE s; beats: times of the R waves, s; early: which are ectopic."""

    level: Array
    beats: Array
    early: Array


def record(seed: int, seconds: float, noise: float) -> Record:
    """A heart of 55 to 100 beats a minute, one beat in thirty ectopic.  noise: its deviation; an R wave is 1."""
    draw = np.random.default_rng(seed)
    interval = 60.0 / draw.uniform(55.0, 100.0)
    beats: list[float] = []
    early: list[bool] = []
    at, rest = 0.5, 0
    while at < seconds - 0.5:
        ectopic = rest == 0 and len(beats) > 8 and draw.random() < 1 / 30
        if ectopic:
            at -= (1 - _EARLY) * interval
        beats.append(at)
        early.append(ectopic)
        rest = 3 if ectopic else max(rest - 1, 0)
        usual = interval * (1 + _SWING * np.sin(2 * np.pi * at / _BREATH) + _JITTER * draw.standard_normal())
        at += _LATE * interval if ectopic else usual
    times = np.arange(round(seconds * RATE)) / RATE
    level = 0.25 * np.sin(2 * np.pi * times / 7.3) + noise * draw.standard_normal(len(times))
    for beat, odd in zip(beats, early, strict=True):
        for when, height, width in _ECTOPIC if odd else _NORMAL:
            near = slice(*np.searchsorted(times, (beat + when - 5 * width, beat + when + 5 * width)))
            level[near] += height * np.exp(-0.5 * ((times[near] - beat - when) / width) ** 2)
    return Record(level, np.array(beats), np.array(early))


class Electrodes(Sensor):
    """A quarter of a second of one heart a read, with the times of its samples.  address: "seed seconds noise"."""

    batch = True

    def init(self, address: Any, row: Mapping[str, Any]) -> None:  # noqa: ARG002
        seed, seconds, noise = str(address).split()
        self._level = record(int(seed), float(seconds), float(noise)).level
        self._at = 0

    def read(self) -> Any:
        begin, self._at = self._at, self._at + _STEP
        if begin >= len(self._level):
            return END
        samples = self._level[begin : self._at].tolist()
        return NEW_VALUE, samples, [(begin + k) / RATE for k in range(len(samples))]


def database(seeds: list[int], seconds: float, noise: float) -> Database:
    """A table of patients, each with a stream of samples."""
    db = Database()
    db.sql(
        "CREATE SENSORS patients (bed INT, ecg STREAM(level DOUBLE) "
        f"USING 'nile.experiments.examples.heart.beats:Electrodes') LATENESS '{seconds:g} s'"
    )
    db.sensors("patients").add([{"bed": bed, "ecg": f"{seed} {seconds} {noise}"} for bed, seed in enumerate(seeds)])
    return db
