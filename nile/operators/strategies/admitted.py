"""The tuples of two streams that came in, as the exact joins take them, with their places in the streams."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from nile.exact.join.chain import ExactJoin, encode, window_codes
from nile.exact.join.listed import Lists

__all__ = ["Admitted", "Side"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Side:
    """Of one stream: ts, place, int64 [m], times and places in the stream; stratum, uint8 [m]; key, of Arrow, [m]."""

    ts: Array
    place: Array
    stratum: Array
    key: Any

    def __len__(self) -> int:
        return int(self.ts.shape[0])


class Admitted:
    """Two streams of tuples that came in; nothing is encoded before it is asked for.  window: ns or None."""

    def __init__(self, left: Side, right: Side, window: int | None) -> None:
        self.left = left
        self.right = right
        self.window = window

    def __len__(self) -> int:
        return len(self.left) + len(self.right)

    @property
    def threads(self) -> int:
        """One: a thread that runs ahead spends what the budget may not have."""
        return 1

    @property
    def window_codes(self) -> tuple[Array, Array]:
        """Keys as window joins take them: int64 [m] each."""
        left, right = window_codes((self.left.key, self.right.key), shared=True, threads=self.threads)
        return left, right

    @cached_property
    def exact(self) -> ExactJoin:
        """Their exact join."""
        left, right, keys = encode(self.left.key, self.right.key)
        return ExactJoin(self.left.ts, self.right.ts, left, right, keys, self.window, self.threads)

    @property
    def listed(self) -> Lists:
        """Their exact join by lists, whose pairs are told by their places in the streams."""
        window = -1 if self.window is None else self.window
        return Lists((self.left.ts, self.right.ts), self.window_codes, window, threads=self.threads, told=self.places)

    @property
    def places(self) -> tuple[Array, Array]:
        """Of both sides."""
        return self.left.place, self.right.place
