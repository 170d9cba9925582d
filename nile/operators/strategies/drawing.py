"""A sample of counted pairs that can end early by the clock, and whose weights are right whenever that is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Protocol, TypeVar

import numpy as np

from nile.operators.common.data import Outputs
from nile.operators.drive.clock import Clock
from nile.operators.multiway.outputs import Combinations

__all__ = ["drawn_in_parts"]

Array = np.ndarray[Any, Any]
Out = TypeVar("Out", covariant=True)
Found = TypeVar("Found", Outputs, Combinations)
_PARTS, _PASSING = 8, 0.1
"""Parts at the most, and of the time that is left, what going through all tuples again for each may take."""
_AHEAD = 2.0
"""Parts that there has to be time for, with what is left to hand out of this one, or it is the last."""


class Drawn(Protocol[Out]):
    """Outputs that were counted key by key."""

    def drawn(self, which: Array, rate: Array, stands: Array, phase: float) -> Iterator[Out]:
        """A systematic sample of them, as of `KeyPairs`."""


def drawn_in_parts(
    found: Drawn[Found], which: Array, rate: Array, weight: Array, rng: np.random.Generator, clock: Clock | None,
    grant: float, rest: float, passing: float,
) -> Iterator[Found]:  # fmt: skip
    """A systematic sample of the pairs, each with the probability of its stratum; under a clock maybe fewer.

    which: uint8, the stratum of each key ([0]: all are in one); rate, weight: float64 [strata], of a pair its
    probability, and what it stands for where all are drawn; rng: of the first draw, and of the order of parts; grant:
    ns of the clock; rest, passing: ns that are left, and that going through all tuples once takes.

    Under a clock it is dealt into parts, every n-th pair of it to each: samples of all pairs, so that each of them
    tells every total right on average.  A part is held until it is drawn; then the clock says whether it is the last,
    which counts for all that were to come, too.  Which pairs it has says nothing of that, for each has as many: so the
    weighted mean of the parts is right on average whenever the last one comes; a sample that was cut off would miss
    what comes last.  A clock that halts while a part is drawn is seen before it counts for less than it has to.
    """
    parts = 1 if clock is None else max(1, min(_PARTS, int(_PASSING * rest / max(1.0, passing))))
    phase, left_over, took = float(rng.random()), 1.0, 0.0
    order = rng.permutation(parts)  # each part begins anywhere, whichever are drawn
    began = 0.0 if clock is None else clock.elapsed
    for k in range(parts):
        drawn = found.drawn(which, rate / parts, weight / rate, float(phase + order[k]) / parts)
        if clock is None or parts == 1:
            yield from drawn
            return
        held, now = list(drawn), clock.elapsed
        took, began = max(took, now - began), now
        is_last = k + 1 == parts or grant - now < _AHEAD * took
        counts_for = left_over if is_last else 1.0 / parts
        for part in held:
            yield replace(part, weight=parts * counts_for * part.weight)
        if is_last:
            return
        left_over -= counts_for
