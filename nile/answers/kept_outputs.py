"""Outputs of a run as they are found, kept for whoever asks again as long as they are few."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import islice
from typing import Any, Generic, TypeVar

import numpy as np

from nile.answers.tabular import room_for_answers
from nile.operators.common.contract import Found
from nile.preferences.key_sample import KeySample, KeyTotals
from nile.summaries.estimate import Estimate

__all__ = ["KeptOutputs"]

Array = np.ndarray[Any, Any]
Out = TypeVar("Out", bound=Found)
_CONFIDENCE = 0.95
_MOST_KEPT = 16 << 20  # more costs a short answer a third of its time: memory that the system hands out anew
_MOST_PASSING = (
    64 << 20
)  # of what nobody finds again but passes by: in a share of all memory it took seven times as long
_SHARE = 4


class KeptOutputs(Generic[Out]):
    """The outputs of one run; iterated again from the start, from memory or by another run.

    again: the outputs of a run that finds the same; repeats: whether there is one, else a share of the machine's memory
    is kept (`passing`: 64 MiB) and `again` says why that was not enough.  size: how many single outputs a batch stands
    for; sample: the sample of keys that batches are and how many single outputs each of its rows stands for, None where
    they are none; width: bytes of one.
    """

    def __init__(
        self,
        running: Iterator[Out],
        again: Callable[[], Iterator[Out]],
        size: Callable[[Out], int],
        sample: Callable[[list[Out]], tuple[KeySample, Array]] | None,
        *,
        width: int,
        repeats: bool,
    ) -> None:
        self._running = running
        self._again = again
        self._size = size
        self._sample = sample
        self._width = width
        self._repeats = repeats
        self._kept: list[Out] = []
        self._handed = 0  # batches that the run has given
        self._totals: KeyTotals | None = None
        self.done = False
        self.rows = 0
        self.outputs = 0

    @cached_property
    def _most(self) -> int:
        """Bytes that are kept at the most."""
        return _MOST_KEPT if self._repeats else room_for_answers() // _SHARE

    @property
    def kept(self) -> int:
        """Batches that are held."""
        return len(self._kept)

    @property
    def head(self) -> Out | None:
        """The first batch, where it is held."""
        return self._kept[0] if self._kept else None

    def __iter__(self) -> Iterator[Out]:
        return self._read(self._most)

    def passing(self) -> Iterator[Out]:
        """As iterated, for who holds none of them: little is kept that no other run finds."""
        return self._read(min(_MOST_PASSING, self._most))

    def _read(self, most: int) -> Iterator[Out]:
        at = 0
        while True:
            if at < len(self._kept):
                part = self._kept[at]
            elif at < self._handed:
                yield from islice(self._again(), at, None)
                return
            else:
                found = next(self._running, None)
                if found is None:
                    self.done = True
                    return
                part = found
                self._take(part, most)
            at += 1
            yield part

    def finish(self) -> None:
        """Run to the end."""
        while not self.done:
            part = next(self._running, None)
            if part is None:
                self.done = True
            else:
                self._take(part, self._most)

    def _take(self, part: Out, most: int) -> None:
        whole = len(self._kept) == self._handed
        self._handed += 1
        self.rows += len(part)
        self.outputs += self._size(part)
        if self._totals is not None and self._sample is not None:
            self._totals.add(*self._sample([part]))
        if not whole:
            return
        self._kept.append(part)
        if self.rows * self._width > most:
            if self._sample is not None:
                self._totals = KeyTotals()
                for each in self._kept:
                    self._totals.add(*self._sample([each]))
            self._kept = []

    def count(self) -> Estimate:
        """How many single outputs the whole answer has, of the sample that a finished run found."""
        assert self._sample is not None
        if self._totals is not None:
            return self._totals.count(self._sample([])[0], _CONFIDENCE)
        sample, sizes = self._sample(self._kept)
        return sample.count(sizes, _CONFIDENCE)
