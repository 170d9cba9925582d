"""Attempts and controls of one fault, counted."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from nile.experiments.faults.fault import Fault, Wrong

__all__ = ["CONTROLS", "Score", "attempted", "controlled"]

CONTROLS = 5
"""Seeds that the control of a fault is tried with: every one must be red."""
_SHOWN = 300


@dataclass(slots=True)
class Score:
    """What came of a fault.  failed: [(seed, what was told)]; pale: seeds whose control did not fail; seconds: CPU."""

    attempted: int = 0
    failed: list[tuple[int, str]] = field(default_factory=list)
    controls: int = 0
    pale: list[int] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def passed(self) -> int:
        """Attempts that held."""
        return self.attempted - len(self.failed)

    @property
    def good(self) -> bool:
        """Whether all held, and every control failed."""
        return self.attempted > 0 and not self.failed and self.controls > 0 and not self.pale

    def add(self, other: Score) -> None:
        """Take in what another process counted."""
        self.attempted += other.attempted
        self.failed += other.failed
        self.controls += other.controls
        self.pale += other.pale
        self.seconds += other.seconds

    def as_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "passed": self.passed,
            "attempted": self.attempted,
            "failed": [{"seed": seed, "told": text} for seed, text in self.failed],
            "controls": self.controls,
            "controls_red": self.controls - len(self.pale),
            "controls_pale": self.pale,
            "seconds": round(self.seconds, 3),
        }

    @classmethod
    def of(cls, value: dict[str, Any]) -> Score:
        """The score that `as_dict` gave."""
        failed = [(each["seed"], each["told"]) for each in value["failed"]]
        return cls(value["attempted"], failed, value["controls"], value["controls_pale"], value["seconds"])


def attempted(fault: Fault, seeds: Iterable[int], begun: Callable[[int], object] = lambda *_: None) -> Score:
    """Try seeds in this process.  begun: called with each before it is tried, so that a crash has a name."""
    score, start = Score(), time.process_time()
    for seed in seeds:
        begun(seed)
        score.attempted += 1
        try:
            fault.attempt(seed)
        except Exception as error:
            score.failed.append((seed, f"{type(error).__name__}: {error}"[:_SHOWN]))
    score.seconds = time.process_time() - start
    return score


def controlled(fault: Fault, seeds: Iterable[int], begun: Callable[[int], object] = lambda *_: None) -> Score:
    """Try the control, which must raise Wrong for each seed."""
    score, start = Score(), time.process_time()
    for seed in seeds:
        begun(seed)
        score.controls += 1
        try:
            fault.control(seed)
        except Wrong:
            continue
        score.pale.append(seed)
    score.seconds = time.process_time() - start
    return score
