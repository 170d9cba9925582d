"""Window functions in a bound plan: the call before OVER, and its frame."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

__all__ = ["FUNCTIONS", "SESSIONS", "Frame", "bound_text", "over_text"]

FUNCTIONS = {
    "row_number": 0,
    "rank": 0,
    "dense_rank": 0,
    "percent_rank": 0,
    "cume_dist": 0,
    "ntile": 1,
    "lag": 1,
    "lead": 1,
    "first_value": 1,
    "last_value": 1,
    "nth_value": 2,
    "session_start": 1,
    "session_end": 1,
}
"""Functions of a row's place among others, and how many arguments they need; aggregates are the catalogue's."""


SESSIONS = ("session_start", "session_end")
"""The bounds of the run of rows, in order of their times, that each is less than the argument after the one before."""


@dataclass(frozen=True, slots=True)
class Frame:
    """ROWS or RANGE BETWEEN begin AND end: offsets from the current row, below 0 before it, None without bound.

    Of ROWS whole numbers, of GROUPS too, where peers count as one; of RANGE differences of the one key, of times
    microseconds (`interval`).
    """

    unit: Literal["rows", "range", "groups"]
    begin: int | float | None
    end: int | float | None
    interval: bool = False


def over_text(
    call: str, by: Sequence[str], order: Sequence[str], frame: Frame | None, span: tuple[str, str] = ("", "")
) -> str:
    """A call and its OVER as SQL.  span: the frame's bounds as they are written."""
    parts = []
    if by:
        parts.append(f"PARTITION BY {', '.join(by)}")
    if order:
        parts.append(f"ORDER BY {', '.join(order)}")
    if frame is not None:
        parts.append(f"{frame.unit.upper()} BETWEEN {span[0]} AND {span[1]}")
    return f"{call} OVER ({' '.join(parts)})"


def bound_text(offset: int | float | None, amount: str, *, begin: bool) -> str:
    """A bound of a frame.  amount: the offset without its sign, as written."""
    if offset is None:
        return "UNBOUNDED PRECEDING" if begin else "UNBOUNDED FOLLOWING"
    if offset == 0:
        return "CURRENT ROW"
    return f"{amount} {'PRECEDING' if offset < 0 else 'FOLLOWING'}"
