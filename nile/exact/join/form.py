"""The form in which a join was taken, and what it was chosen by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nile.exact.join.parts import SIZE
from nile.exact.join.threads import cores

__all__ = ["LONG", "MOST", "RULE", "RULE_OF_MANY", "SHORT", "TOLD", "UNBOUND", "Form", "chosen", "near", "size_of"]

Array = np.ndarray[Any, Any]
LONG = 2 * SIZE
"""Tuples from which on parts of the input are worth a core each."""
SHORT = 1 << 12
"""Tuples of a window up to which chains stay in the nearest caches, so that parts of the input gain by a core each."""
MOST = 2**31 - 1
"""Tuples that lists have numbers for."""

UNBOUND = "all of either stream is in the window"
RULE = (
    f"chains, {SIZE:,} tuples at a time on each core, from {LONG:,} tuples on where no more than {SHORT:,} lie in a "
    "window and there is a second core; else lists of each key's tuples, without those whose key the other stream has "
    "not where these are a fifth or more"
)
"""What the form of two whole streams on a key is chosen by, in words; of more streams there is one."""
RULE_OF_MANY = (
    "chains, as more than two streams share a key: each tuple probes those of its key as it arrives; tuples whose key "
    "a stream has not are left out first, where a fifth or more are such"
)
TOLD = {
    "chain": "window join chain: each tuple probes those of its key as it arrives (forward evaluation)",
    "few-nested": "window join few-nested: no equal keys to hash, each tuple probes as it arrives (forward evaluation)",
}
"""The algorithms that are taken without being named, as EXPLAIN tells of them."""


@dataclass(frozen=True, slots=True)
class Form:
    """name: lists, chains, one of the algorithms of a window join, counts or sorting.  why: in words.

    tuples: of all inputs; listed: those of them whose key all inputs have, where others were left out; within: tuples
    that lie in a window at once, None without one; keys: distinct ones, or a number above every code where codes are
    keys as they are; coded: whether keys far apart were coded anew; worded: whether pairs are told as they are
    handed out, and not by their places; threads: that worked on it.
    """

    name: str
    why: str
    tuples: int
    listed: int | None = None
    within: float | None = None
    keys: int | None = None
    coded: bool = False
    worded: bool = False
    threads: int = 1


def near(tuples: float, window: float, span: float) -> float:
    """Tuples that lie in a window at once, of so many over a span, ns."""
    return tuples * min(1.0, window / max(1.0, span)) if window >= 0 else tuples


def size_of(ts: tuple[Array, ...], window: int) -> tuple[int, float]:
    """How many tuples whole streams have, and how many of them lie in a window at once."""
    tuples = sum(each.shape[0] for each in ts)
    return tuples, near(tuples, window, max((int(each[-1]) - int(each[0]) for each in ts if each.shape[0]), default=0))


def chosen(tuples: float, within: float) -> tuple[bool, str]:
    """Whether lists cost less than chains for two whole streams, and why.

    Of the machine, not of how many threads are asked for: blocks end elsewhere.
    """
    if tuples > MOST:
        return False, f"{tuples:,.0f} tuples are more than lists have numbers for"
    if tuples < LONG:
        return True, f"{tuples:,.0f} tuples are fewer than the {LONG:,} of which parts are worth a core each"
    if cores() == 1:
        return True, "there is no second core for parts"
    if within > SHORT:
        return True, f"{within:,.0f} tuples lie in a window, whose chains no near cache holds (at most {SHORT:,})"
    return False, f"{within:,.0f} of {tuples:,.0f} tuples lie in a window, whose chains stay in near caches"
