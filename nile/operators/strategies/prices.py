"""What the steps of a strategy cost, in nanoseconds of CPU: the one place that forecasts and spending are priced at."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

__all__ = ["PRICES", "Prices"]


_CACHED, _MEASURED, _LEAST = 16_384, 500_000, 0.4
"""Keys whose tables stay in the caches, keys that the prices are of, and the least share of a price that remains."""


@dataclass(frozen=True, slots=True)
class Prices:
    """Nanoseconds.

    Per tuple: read, handed over and its time converted; text, hashing a key that is no number; seen, counted by the
    slot of its key; look, admitted or refused; encode, a code for its key; take, the same among few heavy keys; copy,
    of one that came in; probe, the exact chain join; rank, its range of matches and its place in its key's list;
    promise, queues of promising regions. Per slot: weigh, what it promises, and its rank. Per pair: chain, the exact
    join's; emit, written from a list; both with the columns handed out. Per run: start, granted beside every
    fraction, since no run takes less before its first tuple.
    """

    read: float = 5.0
    text: float = 12.0
    seen: float = 8.0
    weigh: float = 30.0
    look: float = 2.5
    encode: float = 36.0
    take: float = 25.0
    copy: float = 7.0
    probe: float = 70.0
    rank: float = 38.0
    promise: float = 600.0
    chain: float = 12.0
    emit: float = 12.0
    start: float = 1e7

    def among(self, keys: float) -> Prices:
        """The prices where there are so many distinct keys: tables beyond the caches are dearer with every doubling."""
        beyond = math.log2(1.0 + keys / _CACHED) / math.log2(1.0 + _MEASURED / _CACHED)
        scale = min(1.5, _LEAST + (1.0 - _LEAST) * beyond)
        dear = ("encode", "take", "probe", "rank")
        return replace(self, **{name: scale * getattr(self, name) for name in dear})


PRICES = Prices()
"""As measured on two cores of a server, warm kernels, data in memory."""
