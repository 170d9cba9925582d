"""Deciding about boxes: at a fixed exposure, or as soon as one can, and how often either is right."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nile.experiments.examples.hazmat.boxes import BURST, LONGEST, boxes, database
from nile.experiments.examples.hazmat.spectra import LIBRARY

__all__ = ["Rates", "fixed", "rates_of", "report", "sequential"]

_SURE, _TIMES = 0.06, 3
"""A distance that needs no more exposure, once it has been met so often in a row."""
_NEAREST = "SELECT box, match, distance FROM MATCHES (detectors, net, box, library => 'materials') AS m"
EXPOSURES = (0.5, 1.0, 2.0, 4.0, 8.0)


@dataclass(frozen=True, slots=True)
class Rates:
    """Shares: of boxes with a known material those told right and told as another one; of others those told as one."""

    detected: float
    confused: float
    false_alarms: float
    seconds: float


def fixed(held: Sequence[str], seed: int) -> dict[float, list[str]]:
    """What each box is told to hold at each exposure: the nearest material, where it is near enough."""
    db = database(list(held), seed)
    told: dict[int, list[tuple[str, float]]] = {}
    for box, match, distance in db.sql(_NEAREST).fetchall():
        told.setdefault(box, []).append((match, distance))
    return {each: [_named(*told[box][round(each / BURST) - 1], each) for box in range(len(held))] for each in EXPOSURES}


def sequential(held: Sequence[str], seed: int) -> list[tuple[str, float]]:
    """What each box is told to hold, and after how many seconds.

    One that is sure three times in a row, of a material or of none, is told at once and counted no longer; others ask
    for more exposure, up to the longest.
    """
    db = database(list(held), seed)
    sensors = db.sensors("detectors")
    told: dict[int, tuple[str, float]] = {}
    bursts, run = [0] * len(held), [("none", 0)] * len(held)
    with db.subscribe(_NEAREST) as found:
        for batch in found.follow(60):
            for row in batch.to_pylist():
                box, match = row["box"], row["match"]
                if box in told:
                    continue
                bursts[box] += 1
                before, times = run[box]
                seconds = bursts[box] * BURST
                sure = _sure(match, row["distance"], seconds)
                run[box] = (sure or "", times + 1 if sure == before else 1)
                if sure is not None and run[box][1] == _TIMES:
                    told[box] = (sure, seconds)
                    sensors.remove(f"box = {box}")
                elif seconds >= LONGEST:
                    told[box] = (_named(match, row["distance"], seconds), seconds)
    return [told[box] for box in range(len(held))]


def _near(seconds: float) -> float:
    """Up to which distance a material may be meant: counting noise makes it grow as the exposure shrinks."""
    return min(0.05 + 0.45 / seconds, 0.6)


def _named(match: str, distance: float, seconds: float) -> str:
    return match if distance <= _near(seconds) else "none"


def _sure(match: str, distance: float, seconds: float) -> str | None:
    """What a box holds without doubt; None: more exposure is needed."""
    if distance <= _SURE:
        return match
    return "none" if distance > 2 * _near(seconds) else None


def rates_of(held: Sequence[str], told: Iterable[str], seconds: Sequence[float]) -> Rates:
    """How often that was right."""
    pairs = list(zip(held, told, strict=True))
    known = [(truth, said) for truth, said in pairs if truth in LIBRARY]
    others = [said for truth, said in pairs if truth not in LIBRARY]
    return Rates(
        sum(truth == said for truth, said in known) / max(len(known), 1),
        sum(said not in (truth, "none") for truth, said in known) / max(len(known), 1),
        sum(said != "none" for said in others) / max(len(others), 1),
        sum(seconds) / max(len(seconds), 1),
    )


def report(count: int, seed: int) -> list[tuple[str, Rates]]:
    """Each way to decide, by name, and its rates over the same boxes."""
    held = boxes(count, seed)
    told = fixed(held, seed)
    rows = [(f"{each:g} s each", rates_of(held, told[each], [each] * count)) for each in EXPOSURES]
    said = sequential(held, seed)
    return [*rows, ("until sure", rates_of(held, [match for match, _ in said], [at for _, at in said]))]
