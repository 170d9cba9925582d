"""Arrays of an operator over keys that come and go: they grow, and are renumbered."""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.pyramid.grid import arrays as ga
from nile.pyramid.grid.store import TupleStore

__all__ = ["grown", "renumber_store", "rows_at"]

Array = np.ndarray[Any, Any]


def renumber_store(store: TupleStore, alive: Array, code_of: Array) -> None:
    """Give the keys of codes `alive` the codes 0, 1, ...  code_of: int32 [old codes + 1], the last of a null key."""
    side = store.side
    held = store.tuples - int(side.meta[ga.BASE])
    side.code[:held] = code_of[side.code[:held]]
    placed = code_of[side.placed[: int(side.meta[ga.PLACED])]]
    placed = placed[placed >= 0]
    side.placed[: placed.shape[0]] = placed
    side.meta[ga.PLACED] = placed.shape[0]
    store.side = side._replace(lists=rows_at(side.lists, alive, 0))
    store.keys = alive.shape[0]


def rows_at(array: Array, at: Array, fill: int) -> Array:
    """The rows `at`, with room for as many again."""
    return grown(array[at], max(256, 2 * at.shape[0]), fill)


def grown(array: Array, size: int, fill: int) -> Array:
    """The array with `size` rows, new ones filled with `fill`."""
    bigger = np.full((size, *array.shape[1:]), fill, array.dtype)
    bigger[: array.shape[0]] = array
    return bigger
