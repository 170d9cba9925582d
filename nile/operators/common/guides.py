"""Which guide a query gets when it names none: the cheaper of the two, by the cost table."""

from __future__ import annotations

from dataclasses import dataclass

from nile.preferences.state import LEAST_SHOWN, SHOWN
from nile.pyramid.grid.spec import SLICE, SummarySpec
from nile.pyramid.grid.store import DETECTOR_COLUMNS, DETECTOR_ROWS
from nile.summaries.costs import CostTable

__all__ = ["AUTO", "GuideChoice", "choose_guide"]

AUTO = "auto"


@dataclass(frozen=True, slots=True)
class GuideChoice:
    """The guide chosen, and what each would cost per tuple, in units of the cost table."""

    guide: str
    countsketch: float
    directory: float
    costs: str

    def __str__(self) -> str:
        other = "directory" if self.guide == "countsketch" else "countsketch"
        return (
            f"guide {self.guide}, by itself: {getattr(self, self.guide):.3g} units a tuple to keep and ask, "
            f"{other} {getattr(self, other):.3g} ({self.costs} table)"
        )


def choose_guide(spec: SummarySpec, costs: CostTable, preference: str, *, streams: int = 2) -> GuideChoice:
    """The guide that costs per tuple least, all tuples being in memory.

    directory: reading the bounds of one list in each other stream.  countsketch: the updates of the sketch and, for a
    sample, of the detector, a read of each granularity's root in each other stream (asc: of every row, in its own
    too), and the detector's looks; turns of zones come on top.  Warm and cold tuples, which have no directory in
    memory, leave only the sketch.
    """
    asked = streams if preference == "asc" else streams - 1
    bounds = asked * min(costs.scan, costs.lookup)
    detector = DETECTOR_ROWS if spec.structure == "T4" else 0
    reads = asked * spec.depth * (spec.rows if preference == "asc" else 1)
    sketch = (
        costs.update_sketch(spec.rows)
        + SHOWN * costs.update_sketch(detector)
        + costs.add * 2 * detector * DETECTOR_COLUMNS / max(SLICE, LEAST_SHOWN / SHOWN)
        + costs.estimate_sketch(reads)
        + bounds
    )
    return GuideChoice(
        guide="directory" if bounds <= sketch else "countsketch",
        countsketch=sketch,
        directory=bounds,
        costs=costs.name,
    )
