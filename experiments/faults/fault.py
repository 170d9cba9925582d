"""What a fault is: an attempt that derives everything from its seed, and a control that the same check must fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from nile.summaries.summary import Summary

__all__ = ["Fault", "Wrong", "expect", "feed", "generator"]

Array = np.ndarray[Any, Any]


class Wrong(AssertionError):
    """What must hold did not: the answer, the accounting, or the memory."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One row of the scoreboard.

    expected: what must hold, in a few words; attempt: raises anything when it does not, for this seed; control: the
    same check put to something that is wrong, which must raise Wrong; full: attempts of the whole count, small: those
    of the tests.  Attempts share nothing but caches, so any seed runs again alone.
    """

    name: str
    title: str
    expected: str
    attempt: Callable[[int], object]
    control: Callable[[int], object]
    full: int
    small: int


def expect(holds: Any, told: str) -> None:
    """Raises Wrong with this text unless it holds."""
    if not holds:
        raise Wrong(told)


def generator(name: str, seed: int) -> np.random.Generator:
    """The random numbers of one attempt: of no other fault or seed."""
    return np.random.Generator(np.random.PCG64([seed, *name.encode()]))


def feed(summary: Summary, keys: Array, weights: Array, rng: np.random.Generator) -> None:
    """Put tuples in by one of the two ways there are: as they are, or by adding a summary of them."""
    if rng.random() < 0.5:
        summary.summarize(keys, weights)
    else:
        other = summary.empty()
        other.summarize(keys, weights)
        summary.add(other)
