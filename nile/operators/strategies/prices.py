"""What the steps of a strategy cost, in nanoseconds of CPU: the one place that forecasts and spending are priced at."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PRICES", "Prices"]


@dataclass(frozen=True, slots=True)
class Prices:
    """Nanoseconds.  Per tuple: read (handed over, times converted), text (hashing a key that is no number), slot
    (counting it by the slot of its key), look (admitting or refusing it), encode (a code for its key), probe (the exact
    chain join), rank (its range of matches, and its place in the list of its key), promise (queues of promising
    regions).  Per pair: chain (the exact join's), emit (written from a list); both with the columns handed out.
    """

    read: float = 8.0
    text: float = 12.0
    slot: float = 2.0
    look: float = 3.0
    encode: float = 32.0
    probe: float = 45.0
    rank: float = 45.0
    promise: float = 600.0
    chain: float = 11.0
    emit: float = 11.0


PRICES = Prices()
"""As measured on two cores of a server, warm kernels, data in memory."""
