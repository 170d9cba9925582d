"""The soak: many standing queries for an hour, and whether memory or descriptors grow."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nile.engine.database import Database
from nile.experiments.faults.memory import anonymous, descriptors
from nile.experiments.faults.soak_page import soak_page
from nile.summaries.heavy import pa

__all__ = ["Soak", "SoakReport", "soak", "write_soak"]

BAR = 1_000_000.0
"""Bytes an hour that anonymous memory may grow after the warm-up."""
_WARM = 1 / 3
_SAMPLES = 720
"""What is held differs by megabytes from batch to batch: fewer leave the slope uncertain by its bar."""
_TOLD = 12
"""Of so many looks one is told."""
_SECOND = 10**9


@dataclass(frozen=True, slots=True)
class Soak:
    """What is done.  minutes: wall time; rate: tuples per second, both streams; queries: standing ones."""

    minutes: float = 60.0
    rate: int = 200_000
    queries: int = 100
    seed: int = 0


@dataclass(frozen=True, slots=True)
class SoakReport:
    """What came of it.  tuples: pushed; rate: tuples per second reached; slope: bytes per hour after the warm-up.

    curve: [(minutes, anonymous bytes, bytes that allocators kept beyond them, descriptors)], see `anonymous`.
    """

    asked: Soak
    tuples: int
    outputs: int
    rate: float
    slope: float
    descriptors_grown: int
    curve: tuple[tuple[float, int, int, int], ...]

    @property
    def good(self) -> bool:
        """Whether neither memory nor descriptors grew."""
        return self.slope <= BAR and self.descriptors_grown <= 0

    def verdict(self) -> str:
        """Whether memory and descriptors grew, in one sentence."""
        met = "within" if self.slope <= BAR else "beyond"
        grown = "no descriptor stayed open" if self.descriptors_grown <= 0 else f"{self.descriptors_grown} stayed open"
        slope = f"{self.slope / 1e6:+.2f} MB per hour"
        return f"After the warm-up memory grew by {slope}, {met} the bar of {BAR / 1e6:g}; {grown}."

    def text(self) -> str:
        """The report as a person reads it."""
        first, last = self.curve[0][1], self.curve[-1][1]
        return (
            f"{self.asked.minutes:g} minutes, {self.asked.queries} standing queries: {self.tuples:,} tuples, "
            f"{self.rate:,.0f} a second of {self.asked.rate:,} asked, {self.outputs:,} outputs read\n"
            f"anonymous memory {first / 1e6:.1f} to {last / 1e6:.1f} MB; after the warm-up {self.slope / 1e6:+.2f} "
            f"MB per hour, bar {BAR / 1e6:g}: {'met' if self.slope <= BAR else 'NOT met'}\n"
            f"beyond it allocators kept at most {max(kept for _, _, kept, _ in self.curve) / 1e6:.1f} MB for later\n"
            f"descriptors grown: {self.descriptors_grown}"
        )


def soak(asked: Soak, told: Callable[[str], object] = lambda *_: None) -> SoakReport:
    """Push at a rate (or as fast as it goes) for so long, read all outputs, look at memory 720 times."""
    rng = np.random.Generator(np.random.PCG64(asked.seed))
    with Database() as db:
        for name in "ab":
            schema = [("t", pa.timestamp("ns")), ("k", pa.int64()), ("x", pa.float64())]
            db.stream(name, schema, time="t", lateness="100 ms", keep="2 s")
        standing = [db.subscribe(text) for text in _statements(asked.queries)]
        size = max(256, asked.rate // 5)  # a batch every 0.2 s: a push costs each query about 0.8 ms, however small
        begun = time.monotonic()
        end, every = begun + 60 * asked.minutes, 60 * asked.minutes / _SAMPLES
        tuples = outputs = 0
        curve: list[tuple[float, int, int, int]] = []
        while (now := time.monotonic()) < end:
            at = tuples * _SECOND // asked.rate + np.arange(size) * _SECOND // asked.rate
            at = at - rng.integers(0, _SECOND // 20, size)
            columns = [
                pa.array(at, pa.timestamp("ns")),
                pa.array(rng.zipf(1.3, size) % 5_000),
                pa.array(rng.random(size)),
            ]
            db.push("ab"[tuples // size % 2], pa.table(columns, names=["t", "k", "x"]))
            tuples += size
            outputs += sum(len(batch) for query in standing for batch in query.poll())
            if now >= begun + len(curve) * every:
                curve.append(((now - begun) / 60, *anonymous(), descriptors()))
                if len(curve) % _TOLD == 1:
                    told(f"{curve[-1][0]:.1f} min, {tuples:,} tuples, {curve[-1][1] / 1e6:.1f} MB")
            ahead = begun + tuples / asked.rate - time.monotonic()
            if ahead > 0:
                time.sleep(ahead)
        for name in "ab":
            db.accounting(name).check()
        took = time.monotonic() - begun
        if len(curve) == 1:  # one batch took all of the time
            curve.append((took / 60, *anonymous(), descriptors()))
    warm = [point for point in curve if point[0] >= _WARM * asked.minutes] or curve
    slope = 0.0 if len(warm) < 2 else float(np.polyfit([p[0] / 60 for p in warm], [p[1] for p in warm], 1)[0])
    return SoakReport(asked, tuples, outputs, tuples / took, slope, warm[-1][3] - warm[0][3], tuple(curve))


def write_soak(report: SoakReport, folder: Path) -> None:
    """soak.json, and soak.html with the curve."""
    folder.mkdir(parents=True, exist_ok=True)
    written: dict[str, Any] = {**asdict(report), "good": report.good}
    (folder / "soak.json").write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")
    (folder / "soak.html").write_text(soak_page(report), encoding="utf-8")


def _statements(count: int) -> list[str]:
    """Selections, windowed counts and joins, each of other keys."""
    kinds = (
        "SELECT k, x FROM a WHERE k = {n} AND x > 0.5",
        "SELECT k, count(*) AS n, sum(x) AS total FROM b [RANGE '1 s'] WHERE k = {n} GROUP BY k",
        "SELECT k, x FROM b WHERE k BETWEEN {n} AND {n} + 3 AND x < 0.01",
        "SELECT a.k, a.x, b.x AS y FROM a, b WHERE a.k = b.k AND a.k = {n} AND a.x > 0.9 AND b.x > 0.9 WINDOW '1 s'",
    )
    return [kinds[i % len(kinds)].format(n=1_000 + 37 * i) for i in range(count)]
