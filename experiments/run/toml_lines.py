"""Which line of a TOML text a key stands on, found with the standard parser alone."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence

__all__ = ["line_of"]


def line_of(text: str, path: Sequence[str | int]) -> int | None:
    """First line (from 1) of the statement or table header that sets `path`, or of its nearest parent.

    A number in `path` is a place in an array of tables.

    `text` must parse.  A prefix of the text that ends inside a statement does not parse, so the shortest
    prefix whose completion holds the key ends on the line where its statement begins.  O(log lines) parses.
    None when not even the first name is there.
    """
    lines = text.split("\n")
    for length in range(len(path), 0, -1):
        if _holds(lines, len(lines), path[:length]):
            low, high = 1, len(lines)
            while low < high:
                middle = (low + high) // 2
                if _holds(lines, middle, path[:length]):
                    high = middle
                else:
                    low = middle + 1
            return low
    return None


def _holds(lines: list[str], count: int, path: Sequence[str | int]) -> bool:
    """Whether the first `count` lines, completed to the end of the statement they end in, set `path`."""
    for end in range(count, len(lines) + 1):
        try:
            table: object = tomllib.loads("\n".join(lines[:end]))
        except tomllib.TOMLDecodeError:
            continue
        for name in path:
            known: object = range(len(table)) if isinstance(table, list) else table
            if not isinstance(known, dict | range) or name not in known:
                return False
            table = table[name]  # type: ignore[index]
        return True
    return False
