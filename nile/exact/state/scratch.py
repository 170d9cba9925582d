"""What a step of groups over a window writes into while it lasts."""

from __future__ import annotations

from itertools import pairwise
from typing import ClassVar, TypeAlias

import numpy as np

from nile.exact.state.arrow import Array
from nile.exact.state.lent import roomy
from nile.exact.state.totals.states import Linear, Touches

__all__ = ["ROOM", "Scratch", "View"]

ROOM = 16
"""Tuples of a step for which there is room without asking for any."""

View: TypeAlias = tuple[Touches, list[tuple[Linear, Array, int, tuple[Array, ...]]], Array]
"""Of some tuples and pairs in scratch: what states are given of them; each state, the words of its column, which of the
line's columns it is (-1: none), and where it says what it has; true for each tuple."""


class Scratch:
    """Room for the tuples of a step and for the pairs (instant, group) that they touch."""

    DERIVED: ClassVar = (
        "tuples", "signs", "codes", "pairs", "taken", "numbers", "sides", "chosen", "views",
    )  # fmt: skip

    def __init__(self, room: int, words: int, width: int) -> None:
        rows = (3, 6, words, 2 * width, 2, 1)
        begins = np.cumsum([0, *rows]) * room
        whole = roomy(int(begins[-1]) + -(-room // 8))  # asked for once: threads ask for much of it at the same time
        each = [whole[begin:end] for begin, end in pairwise(begins.tolist())]
        self.tuples, self.pairs, self.taken = (part.reshape(-1, room) for part in each[:3])
        self.numbers = each[3].reshape(2, width, room)
        self.sides = self.numbers[0], self.numbers[1]
        self.chosen, self.codes = each[4:]
        self.signs = whole[begins[-1] :].view(np.int8)[:room]
        self.views: dict[tuple[int, int], View] = {}
