"""What window joins over independent queues must produce, by definition: no queue, no order between streams, no state.

Streams are lists of (ts, code), in the order of each stream alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

Stream = Sequence[tuple[int, int]]


def combinations(streams: Sequence[Stream], window: int) -> list[tuple[int, ...]]:
    """All ordinals of equal keys, none null, every two within the window."""
    found = []
    for ordinals in product(*(range(len(stream)) for stream in streams)):
        members = [streams[j][k] for j, k in enumerate(ordinals)]
        times, codes = [ts for ts, _ in members], {code for _, code in members}
        if len(codes) == 1 and min(codes) >= 0 and max(times) - min(times) <= window:
            found.append(ordinals)
    return found


def completed(streams: Sequence[Stream], window: int, order: Sequence[int]) -> list[tuple[int, ...]]:
    """What tuples complete when they are admitted in an order of streams: each with all that were admitted before.

    A tuple's combinations come as nested loops over the other streams give them, from the one behind it on.
    """
    n = len(streams)
    counts = [0] * n
    found = []
    for j in order:
        ordinal = counts[j]
        counts[j] += 1
        seen = [stream[: counts[k]] for k, stream in enumerate(streams)]
        own = [each for each in combinations(seen, window) if each[j] == ordinal]
        found += sorted(own, key=lambda each, j=j: [each[(j + k) % n] for k in range(1, n)])  # type: ignore[misc]
    return found


def forward_admits(
    streams: Sequence[Stream], window: int, ended: Sequence[bool]
) -> tuple[list[set[int]], list[set[int]]]:
    """(admitted, let go unjoined) of each stream, once forward evaluation can do no more with what has come.

    Mode 1 lets go of a stream's oldest tuple while another stream's oldest lies beyond its window.  When all have one
    and they are within the window of each other, Mode 2 admits what lies within the window behind the oldest of them;
    only when every stream is known to be past that is the oldest let go, and Mode 1 begins again.
    """
    n = len(streams)
    left = [list(range(len(stream))) for stream in streams]
    admitted: list[set[int]] = [set() for _ in streams]
    unjoined: list[set[int]] = [set() for _ in streams]

    def let_go(j: int) -> None:
        ordinal = left[j].pop(0)
        if ordinal not in admitted[j]:
            unjoined[j].add(ordinal)

    while True:
        heads = [streams[j][left[j][0]][0] if left[j] else None for j in range(n)]
        if any(ended[j] and heads[j] is None for j in range(n)):
            for j in range(n):
                while left[j]:
                    let_go(j)
            return admitted, unjoined
        known = [(ts, j) for j, ts in enumerate(heads) if ts is not None]
        behind = [j for ts, j in known if ts < max(known)[0] - window]
        if behind:
            let_go(behind[0])
            continue
        if len(known) < n:
            return admitted, unjoined
        until = min(known)[0] + window
        for j in range(n):
            admitted[j] |= {k for k in left[j] if streams[j][k][0] <= until}
        if not all(ended[j] or streams[j][left[j][-1]][0] > until for j in range(n)):
            return admitted, unjoined
        let_go(min(known)[1])
