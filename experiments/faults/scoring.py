"""Attempts and controls of one fault, counted."""

from __future__ import annotations

import resource
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from nile.experiments.faults.changes.forks import spent
from nile.experiments.faults.fault import Fault, Wrong

__all__ = ["CONTROLS", "Score", "attempted", "controlled", "tried"]

CONTROLS = 5
"""Seeds that the control of a fault is tried with: every one must be red."""
_SHOWN = 300

Spans = list[tuple[int, int]]


@dataclass(slots=True)
class Score:
    """What came of a fault, as far as it was tried.

    seeds, controls: those attempted and those the control was tried with, as spans (first, end) in order; failed:
    [(seed, what was told)]; pale: seeds whose control did not fail; seconds: CPU; asked: how many attempts there were
    to be, 0: those that there are.
    """

    seeds: Spans = field(default_factory=list)
    failed: list[tuple[int, str]] = field(default_factory=list)
    controls: Spans = field(default_factory=list)
    pale: list[int] = field(default_factory=list)
    seconds: float = 0.0
    asked: int = 0

    @property
    def attempted(self) -> int:
        """Seeds tried."""
        return _count(self.seeds)

    @property
    def controlled(self) -> int:
        """Seeds that the control was tried with."""
        return _count(self.controls)

    @property
    def passed(self) -> int:
        """Attempts that held."""
        return self.attempted - len(self.failed)

    @property
    def whole(self) -> bool:
        """Whether all was tried that was to be."""
        return 0 < self.attempted >= self.asked and self.controlled > 0

    @property
    def good(self) -> bool:
        """Whether all held, and every control failed."""
        return self.whole and not self.failed and not self.pale

    def add(self, other: Score) -> None:
        """Take in what was counted elsewhere, of other seeds."""
        self.seeds = _joined(self.seeds + other.seeds)
        self.failed = sorted(self.failed + other.failed)
        self.controls = _joined(self.controls + other.controls)
        self.pale = sorted(self.pale + other.pale)
        self.seconds += other.seconds

    def as_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "passed": self.passed,
            "attempted": self.attempted,
            "asked": self.asked,
            "failed": [{"seed": seed, "told": text} for seed, text in self.failed],
            "controls": self.controlled,
            "controls_red": self.controlled - len(self.pale),
            "controls_pale": self.pale,
            "seconds": round(self.seconds, 3),
            "seeds": self.seeds,
            "control_seeds": self.controls,
        }

    @classmethod
    def of(cls, value: dict[str, Any]) -> Score:
        """The score that `as_dict` gave."""
        failed = [(each["seed"], each["told"]) for each in value["failed"]]
        seeds, controls = ([(first, end) for first, end in value[name]] for name in ("seeds", "control_seeds"))
        return cls(seeds, failed, controls, value["controls_pale"], value["seconds"], value["asked"])


def tried(fault: Fault, what: str, seed: int) -> Score:
    """The score of one seed.  what: "attempts", or "controls": the control, which must raise Wrong."""
    start, span = _cpu(), [(seed, seed + 1)]
    score = Score(seeds=span) if what == "attempts" else Score(controls=span)
    try:
        if what == "attempts":
            fault.attempt(seed)
        else:
            fault.control(seed)
            score.pale.append(seed)
    except Wrong as error:
        if what == "attempts":
            score.failed.append((seed, _told(error)))
    except Exception as error:
        if what != "attempts":
            raise
        score.failed.append((seed, _told(error)))
    score.seconds = _cpu() - start
    return score


def attempted(fault: Fault, seeds: Iterable[int]) -> Score:
    """Try seeds in this process."""
    return _all(fault, "attempts", seeds)


def controlled(fault: Fault, seeds: Iterable[int]) -> Score:
    """Try the control in this process."""
    return _all(fault, "controls", seeds)


def _all(fault: Fault, what: str, seeds: Iterable[int]) -> Score:
    score = Score()
    for seed in seeds:
        score.add(tried(fault, what, seed))
    return score


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:_SHOWN]


def _cpu() -> float:
    """Seconds that this process has used, and those of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used) + spent()


def _count(spans: Spans) -> int:
    return sum(end - first for first, end in spans)


def _joined(spans: Spans) -> Spans:
    """Spans that share no seed, in order, neighbours as one."""
    out: Spans = []
    for first, end in sorted(spans):
        if out and out[-1][1] == first:
            out[-1] = (out[-1][0], end)
        else:
            out.append((first, end))
    return out
