"""Cutting a stream by time into stretches that one task each can sort: whole time ranges, or pieces of one.

Two tuples of equal time are never cut apart, so a stretch is an interval of event time and stretches in order
are the stream in order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nile.summaries.heavy import spark_functions as functions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Stretch", "cut_sql", "cuts_of", "stretches"]


@dataclass(frozen=True, slots=True)
class Stretch:
    """The tuples from `begin` (ns) on, up to the next stretch; rows: how many, None where not counted."""

    begin: int
    rows: int | None


def stretches(counted: Mapping[int, int], cuts: Mapping[int, Sequence[int]], range_ns: int, rows: int) -> list[Stretch]:
    """Consecutive time ranges, together at most `rows` tuples or else one range; those with cuts in pieces.

    counted: tuples by number of the time range, in order.  cuts: event times inside a range, ascending.
    """
    found: list[Stretch] = []
    room = 0
    for place, count in counted.items():
        begin = place * range_ns
        if place in cuts:
            found += [Stretch(at, None) for at in (begin, *cuts[place])]
            room = 0
        elif found and found[-1].rows is not None and count <= room:
            found[-1] = Stretch(found[-1].begin, found[-1].rows + count)
            room -= count
        else:
            found.append(Stretch(begin, count))
            room = rows - count
    return found


def cuts_of(tuples: DataFrame, large: Mapping[int, int], range_ns: int, rows: int) -> dict[int, list[int]]:
    """Event times that cut large time ranges into pieces of about `rows` tuples.  One pass over these ranges.

    large: tuples by number of the time range.
    """
    place = f"(ts - pmod(ts, {range_ns}L)) DIV {range_ns}L"
    pieces = -(-max(large.values()) // rows)
    shares = ", ".join(f"{piece / pieces!r}D" for piece in range(1, pieces))
    inside = ", ".join(f"{one}L" for one in large)
    found = (
        tuples.where(f"{place} IN ({inside})")
        .groupBy(functions.expr(f"{place} AS place"))
        .agg(functions.expr("min(ts) AS first"), functions.expr(f"percentile_approx(ts, array({shares})) AS cuts"))
        .collect()
    )
    chosen = {}
    for row in found:
        wanted = -(-large[row["place"]] // rows)
        at = {row["cuts"][piece * pieces // wanted - 1] for piece in range(1, wanted)}
        chosen[row["place"]] = sorted(cut for cut in at if cut > row["first"])
    return chosen


def cut_sql(cuts: Sequence[int], column: str = "ts") -> str:
    """How many of the ascending `cuts` are <= `column`, as SQL: a search of log2 n comparisons, whatever n."""

    def search(low: int, high: int) -> str:
        if low == high:
            return str(low)
        middle = (low + high) // 2
        return f"IF({column} < {cuts[middle]}L, {search(low, middle)}, {search(middle + 1, high)})"

    return search(0, len(cuts))
