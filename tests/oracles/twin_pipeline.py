"""Algorithms 4.1 and 4.2 of the negative-tuples paper, line by line, in one window over (ts, value) tuples.

Two conditions of Algorithm 4.2 as printed contradict its own example (Figure 7): lines 5 and 31 compare the
frequencies after the update, by which an A that arrives in R when S has one A invalidates nothing.  `printed=False`
compares with what they were before; `printed=True` is the text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

Tuple = tuple[int, str]


class Distinct:
    """W-DISTINCT: H holds the window, DL the tuples that were output and stand."""

    def __init__(self, window: int) -> None:
        self.window = window
        self.h: list[Tuple] = []
        self.dl: list[Tuple] = []

    def expire(self, now: int) -> Iterator[tuple[int, int, str]]:
        for gone in [t for t in self.h if now - t[0] > self.window]:  # 1
            self.h.remove(gone)  # 2
            if gone in self.dl:  # 3
                self.dl.remove(gone)  # 4
                yield now, -1, gone[1]
                again = [t for t in self.h if t[1] == gone[1]]  # 5
                if again:  # 6
                    self.dl.append(again[0])  # 7
                    yield now, 1, gone[1]

    def arrive(self, new: Tuple) -> Iterator[tuple[int, int, str]]:
        if not any(t[1] == new[1] for t in self.h):  # 16, 17
            self.dl.append(new)  # 18
            yield new[0], 1, new[1]
        self.h.append(new)  # 20


class Minus:
    """W-MINUS (ALL): H_S, H_R hold the windows, F_S, F_R count, O_S holds what was output and stands."""

    def __init__(self, window: int, *, printed: bool = False) -> None:
        self.window = window
        self.late = 0 if printed else 1  # what the update took away or added is undone in the comparison
        self.hs: list[Tuple] = []
        self.hr: list[Tuple] = []
        self.fs: Counter[str] = Counter()
        self.fr: Counter[str] = Counter()
        self.out: list[Tuple] = []

    def oldest(self, value: str) -> Tuple:
        return next(t for t in self.out if t[1] == value)

    def expire(self, now: int) -> Iterator[tuple[int, int, str]]:
        both = [(t, "S") for t in self.hs] + [(t, "R") for t in self.hr]
        for gone, stream in sorted(both):  # 1, in the order they expire
            if now - gone[0] <= self.window:
                continue
            value = gone[1]
            if stream == "S":  # 2
                self.hs.remove(gone)  # 3
                self.fs[value] -= 1
                if self.fs[value] + self.late > self.fr[value]:  # 5
                    leaves = gone if gone in self.out else self.oldest(value)  # 6, 7, 9
                    self.out.remove(leaves)
                    yield now, -1, value  # 8; of t_e itself its expiry tells
            else:
                self.hr.remove(gone)  # 13
                self.fr[value] -= 1
                if self.fs[value] > self.fr[value]:  # 15
                    newest = [t for t in self.hs if t[1] == value and t not in self.out][-1]  # 16
                    self.out.append(newest)  # 17
                    yield now, 1, value

    def arrive_s(self, new: Tuple) -> Iterator[tuple[int, int, str]]:
        self.hs.append(new)  # 22
        self.fs[new[1]] += 1
        if self.fs[new[1]] > self.fr[new[1]]:  # 24
            self.out.append(new)  # 25
            yield new[0], 1, new[1]

    def arrive_r(self, new: Tuple) -> Iterator[tuple[int, int, str]]:
        self.hr.append(new)  # 29
        self.fr[new[1]] += 1
        if self.fs[new[1]] > self.fr[new[1]] - self.late:  # 31
            self.out.remove(self.oldest(new[1]))  # 32
            yield new[0], -1, new[1]  # 33
