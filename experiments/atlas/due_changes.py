"""When rows of a workload query come and go, by what the query says: no operator of a pipeline has part in it.

Design.  Tuples come at their times and leave their window an instant after its end.  At each instant the groups that it
touches are worked out anew, and what differs from before is due then; an instant's changes that undo each other are
none.  Cost.  Of a tuple, the tuples of its item in the windows; of Q1, all that pass.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import groupby, product
from operator import itemgetter
from typing import Any

from nile.experiments.atlas.pipeline_queries import Sales

__all__ = ["Event", "due"]

Event = tuple[int, tuple[Any, ...], int]
"""Sign, row, ns."""

_Rows = Counter[tuple[Any, ...]]
_Held = dict[str, defaultdict[Any, list[float | None]]]
"""Of each stream, the prices of each item that lie in its window."""


def due(name: str, sales: Sales, lengths: dict[str, int]) -> Iterator[Event]:
    """Every change of a query up to the last tuple, in order.  lengths: ns, the window of each stream that it reads."""
    held: _Held = {side: defaultdict(list) for side in lengths}
    best: dict[Any, float] = {}  # of Q5, the highest price of each item that both streams hold
    likes = set(sales.favourites.tolist())
    whole: _Rows = Counter()  # of Q1 and Q5, whose one row is of all items
    for now, group in groupby(_moves(sales, lengths), key=itemgetter(0)):
        moves = [(comes, side, 0 if name == "Q1" else item, price) for _, comes, side, item, price in group]
        items = list(dict.fromkeys(item for _, _, item, _ in moves))
        before = whole if name in ("Q1", "Q5") else _rows(name, held, items, likes)
        for comes, side, item, price in moves:
            if name in ("Q1", "Q4") and (price is None or price <= sales.bar):
                continue
            prices = held[side][item]
            prices.append(price) if comes else prices.remove(price)
            if not prices:
                del held[side][item]
        if name == "Q5":
            for item in items:
                best.pop(item, None)
                known = [price for price in held["s"].get(item, ()) if price is not None]
                if known and item is not None and item in held["r"]:
                    best[item] = max(known)
            after: _Rows = Counter([(max(best.values(), default=None),)])
        else:
            after = _rows(name, held, items, likes)
        for sign, rows in ((-1, before - after), (1, after - before)):
            for row in rows.elements():
                yield sign, row, now
        whole = after


def _moves(sales: Sales, lengths: dict[str, int]) -> list[tuple[int, bool, str, Any, float | None]]:
    """(ns, whether it comes, stream, item, price): tuples that leave before those that come, up to the last one."""
    moves = []
    for side, length in lengths.items():
        ts, rows = sales.streams[side]
        for at, item, price in zip(ts.tolist(), *(column.to_pylist() for column in rows.columns), strict=True):
            moves += [(at, True, side, item, price), (at + length + 1, False, side, item, price)]
    end = max(at for at, comes, *_ in moves if comes)
    return sorted((move for move in moves if move[0] <= end), key=itemgetter(0, 1))


def _rows(name: str, held: _Held, items: list[Any], likes: set[int]) -> _Rows:
    """The rows of these items; of Q1, the one row."""
    if name == "Q1":
        passing = held["s"].get(0)
        return Counter([(math.fsum(passing) if passing else None,)])  # type: ignore[arg-type]
    found = [item for item in items if item in held["s"]]
    if name == "Q4":
        pairs = ((item, product(held["s"][item], held["r"].get(item, ()))) for item in found if item is not None)
        return Counter((item, p, item, q) for item, both in pairs for p, q in both)
    liked = [item for item in found if item in likes]
    return Counter((item,) if name == "Q2" else (item, _sum(held["s"][item])) for item in liked)


def _sum(prices: list[float | None]) -> float | None:
    known = [price for price in prices if price is not None]
    return math.fsum(known) if known else None
