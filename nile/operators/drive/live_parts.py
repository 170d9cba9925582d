"""Small parts of a live join: what plans it takes, and arrays that grow and are renumbered."""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.operators.common.data import JoinInput
from nile.operators.common.plan import JoinPlan
from nile.pyramid.grid import arrays as ga
from nile.pyramid.grid.store import TupleStore
from nile.summaries.errors import ConfigError, NotYet
from nile.summaries.hashing import Encoded

__all__ = ["checked", "grown", "no_input", "renumber_store", "rows_at"]

Array = np.ndarray[Any, Any]


def checked(plan: JoinPlan) -> JoinPlan:
    """The plan.  Raises NotYet, ConfigError for one that has no form over live streams."""
    if plan.method != "nile":
        raise NotYet(
            f"live join: needed method 'nile'; got {plan.method!r}, which has no form over live streams yet; leave "
            "method out, or ask sql() over what is kept"
        )
    if plan.pace.is_replay and plan.budget.share is None:
        raise NotYet(
            "live join: needed tuples at their own pace; got a replay, which needs the whole input; leave replay out"
        )
    if plan.window is None:
        raise ConfigError(
            "live join: needed a window, beyond which tuples are let go of; got none, which would keep all of both "
            "streams for good; say WINDOW"
        )
    return plan


def no_input() -> JoinInput:
    """The input of a join that is fed as tuples come."""
    none = Encoded(codes=np.zeros(0, np.int32), hashes=np.zeros(0, np.uint64))
    return JoinInput(
        left_ts=np.zeros(0, np.int64), right_ts=np.zeros(0, np.int64), left=none, right=none,
        order=np.zeros(0, np.int8), costs=np.zeros(0), keys=0,
    )  # fmt: skip


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
