"""Which task of Spark takes a part of a standing query: no two parts share one as long as others are idle.

Spark gives a key to the task that its hash names.  Parts 0 and 1 of two would both go to the second of two tasks, and
four parts to three of four; so a second column stands beside a part's number, whose value puts it where it belongs.
"""

from __future__ import annotations

from itertools import count

import mmh3

__all__ = ["places_of"]

_SEED = 42


def places_of(parts: int) -> tuple[int, ...]:
    """What stands beside the number of each part, so that part i goes to task i of as many tasks as there are parts.

    Of any number of tasks that divides the number of parts, or is a multiple of it, none gets more parts than it must.
    It depends on `parts` alone: Spark keeps states by these columns.  Cost: O(parts ** 2), .3 us each.
    """
    return tuple(next(place for place in count() if _hash(part, place) % parts == part) for part in range(parts))


def _hash(*columns: int) -> int:
    """Spark's hash of columns of longs: Murmur3 of 32 bits, of each with that of those before it as its seed."""
    found = _SEED
    for value in columns:
        found = mmh3.hash(value.to_bytes(8, "little"), found & 0xFFFFFFFF)
    return found
