"""A time zone of a granularity: a run of tuples that one set of cells describes."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Zone"]


@dataclass(frozen=True, slots=True)
class Zone:
    """Tuples with ordinals in [start, end), ts in [first, last] ns; `summarised` of them have a key.

    granularity: 1 (finest) to depth.  slot: which sketch of the grid describes it; the open zone has none
    of its own (it is G1's root minus the closed zones) and slot -1.
    Source: promising tuples, sections 3.1 and 3.3.
    """

    granularity: int
    slot: int
    start: int
    end: int
    first: int
    last: int
    summarised: int

    @property
    def length(self) -> int:
        """Time from the first to the last tuple, ns."""
        return self.last - self.first
