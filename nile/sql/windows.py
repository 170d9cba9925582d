"""The windows that a stream can have of its own (CQL, CIDR 2003, section 2.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeGuard

__all__ = ["Rows", "Slide", "StreamWindow", "is_plain"]


@dataclass(frozen=True, slots=True)
class Rows:
    """The last `count` tuples of a stream; by: of each group of tuples that are equal in these columns."""

    count: int
    by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Slide:
    """The tuples of the last `size` ns as they were at the last multiple of `slide` ns since 1970."""

    size: int
    slide: int


StreamWindow = int | Rows | Slide | None
"""Of a stream: nanoseconds (closed: valid on [ts, ts + w]; 0: NOW, its own instant), the last rows, the last
nanoseconds as of a multiple of a slide, or all that is kept."""


def is_plain(window: StreamWindow) -> TypeGuard[int | None]:
    """Whether a window is a length of time or all that is kept, which every engine knows."""
    return window is None or (isinstance(window, int) and window >= 0)
