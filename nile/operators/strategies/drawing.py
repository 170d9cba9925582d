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
_CLASSES, _PASSING, _AT_ONCE = 32, 0.1, 8
"""Classes that a sample is dealt into at the most; of the time that is left, what going through all tuples again for
each may take; and the share of them, one in so many, that is drawn at once at the most, which is held meanwhile."""
_AHEAD = 3.0
"""Times a part that there has to be time for: work that turns so many times dearer is still done in time."""


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

    Under a clock the sample is dealt into classes, every n-th pair of it to each: samples of all pairs, so that each of
    them tells every total right on average.  They are drawn some at a time, first one, then as many as are done in a
    third of what is left, so that work which turns dearer is seen before time is over.  Each part is held until it is
    drawn; then the clock says how many more there is time for, and the part counts for its share of all to come.
    Which pairs it has says nothing of that, for each class has as many: so the sample is right on average whenever the
    last part comes; one that was cut off would miss what comes last.
    """
    classes = 1 if clock is None else _classes(rest / max(1.0, passing))
    phase = float(rng.random())
    if clock is None or classes == 1:
        yield from found.drawn(which, rate, weight / rate, phase)
        return
    first = int(rng.integers(classes))  # each class comes when it does whichever pairs it has
    drawing = handing = 0.5 * rest / classes  # ns a class, as far as that is known
    begun, stands_for, size = 0, 1.0, 1
    while True:
        apart, began = classes // size, clock.elapsed
        place = (_reversed(begun, classes) ^ first) % apart
        held = list(found.drawn(which, rate / apart, weight / rate, (phase + place) / apart))
        begun, now = begun + size, clock.elapsed
        drawing = max(1.0, now - began) / size
        paid = (grant - now - handing * size - passing) / (drawing + handing)
        more = min(classes - begun, int(paid - _AHEAD + 1.0))
        counts_for = stands_for if more < 1 else stands_for * size / (size + more)
        for part in held:
            yield replace(part, weight=apart * counts_for * part.weight)
        if more < 1:
            return
        stands_for, handing = stands_for - counts_for, (clock.elapsed - now) / size
        size = _part(begun, classes, (grant - clock.elapsed) / _AHEAD / (drawing + handing) - 1.0)


def _classes(passes: float) -> int:
    """Into how many classes a sample is dealt, a power of two.  passes: through all tuples that there is time for."""
    return 1 << min(_CLASSES, max(1, int(_PASSING * passes))).bit_length() - 1


def _part(begun: int, classes: int, paid: float) -> int:
    """How many of the classes from `begun` on are drawn at once, so that they are evenly apart: at the most `paid`."""
    most = max(1, min(classes // _AT_ONCE, int(paid)))
    return min(begun & -begun, 1 << most.bit_length() - 1)


def _reversed(place: int, classes: int) -> int:
    """The bits of a place in the other order: those that come next to each other lie apart."""
    return int(format(place, f"0{classes.bit_length() - 1}b")[::-1], 2)
