"""Watching hearts: beats by PEAKS, rates by PERIODS, early beats by their intervals; and how often that is right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

import numpy as np

from nile.engine.database import Database
from nile.experiments.examples.heart.beats import RATE, Record, database, record

__all__ = ["Rates", "beats", "early", "rates_of", "report", "seconds_per_beat"]

_BEATS = "SELECT bed, at, height FROM PEAKS (patients, level, bed, prominence => 0.55, smooth => 1.2, span => 101) AS p"
_PERIODS = "SELECT bed, seconds FROM PERIODS (patients, level, bed, span => 1024) AS p"
_BEFORE, _EARLY = 8, 0.82  # an interval is short beside the median of so many before it
_NEAR = 0.05  # s between a beat and the one that was found
_NOISES = (0.02, 0.05, 0.1, 0.15)

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Rates:
    """Shares: of beats that were found, of found ones that are none, of early beats told as such, of those told as
    early that are not; worst: by how much a heart's rate is off, of its whole record.
    """

    found: float
    false: float
    early: float
    wrong: float
    worst: float


def beats(db: Database, count: int) -> list[Array]:
    """Of each bed, the times of its beats, s; they are found while the samples stream."""
    times: list[list[float]] = [[] for _ in range(count)]
    with db.subscribe(_BEATS) as standing:
        for batch in standing.follow(60):
            for row in batch.to_pylist():
                times[row["bed"]].append(row["at"].timestamp())
    return [np.array(each) for each in times]


def early(times: Sequence[float]) -> list[float]:
    """Of the beats of one heart those that come too early beside the intervals before."""
    told: list[float] = []
    intervals: list[float] = []
    for before, at in pairwise(times):
        usual = median(intervals[-_BEFORE:]) if len(intervals) >= _BEFORE else None
        if usual is not None and at - before < _EARLY * usual:
            told.append(at)
        intervals.append(at - before)
    return told


def seconds_per_beat(db: Database, count: int) -> list[float]:
    """Of each bed, the median of what every 1,024 samples tell; infinite where they tell nothing."""
    told: list[list[float]] = [[] for _ in range(count)]
    for bed, seconds in db.sql(_PERIODS).fetchall():
        told[bed].append(seconds)
    return [median(each) if each else float("inf") for each in told]


def rates_of(records: Sequence[Record], found: Sequence[Array], periods: Sequence[float]) -> Rates:
    """How often that was right.  The first and last second of a record are left out: half a span is not seen there."""
    hits = all_beats = false = told = right = odd = odd_told = 0
    worst = 0.0
    for one, times, period in zip(records, found, periods, strict=True):
        last = len(one.level) / RATE - 1
        inside = (one.beats > 1) & (one.beats < last)
        seen = [t for t in times if 1 < t < last]
        hits += sum(any(abs(t - beat) < _NEAR for t in times) for beat in one.beats[inside])
        all_beats += int(inside.sum())
        told += len(seen)
        false += sum(not np.any(np.abs(one.beats - t) < _NEAR) for t in seen)
        ectopic = one.beats[one.early & inside]
        flagged = [t for t in early(list(times)) if 1 < t < last]
        odd += len(ectopic)
        right += sum(any(abs(t - beat) < _NEAR for t in flagged) for beat in ectopic)
        odd_told += len(flagged)
        worst = max(worst, abs(period / float(np.median(np.diff(one.beats))) - 1))
    wrong = (odd_told - right) / max(odd_told, 1)
    return Rates(hits / max(all_beats, 1), false / max(told, 1), right / max(odd, 1), wrong, worst)


def report(count: int, seed: int, seconds: float = 120.0) -> list[tuple[float, Rates]]:
    """Each deviation of noise, and what is told of the same hearts under it."""
    seeds = [1_000 * seed + k for k in range(count)]
    rows = []
    for noise in _NOISES:
        records = [record(each, seconds, noise) for each in seeds]
        found = beats(database(seeds, seconds, noise), count)
        rows.append((noise, rates_of(records, found, seconds_per_beat(database(seeds, seconds, noise), count))))
    return rows
