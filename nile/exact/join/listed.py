"""The join of two whole streams by lists of the tuples of each key: what an arrival joins lies one after the other."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from nile.exact.join.dense import dense_codes
from nile.exact.join.parts import SIZE, cores
from nile.exact.join.shared import in_all

__all__ = ["Lists", "suits"]

Array = np.ndarray[Any, Any]
_ROOM = 1 << 16  # pairs a block: two columns of 512 KiB, which stay in a core's cache until they are handed out
_DENSE = 4
"""Codes a tuple up to which rows by code are small enough."""
_SHORT = 1 << 12
"""Tuples of a window up to which chains stay in the nearest caches, so that parts of the input gain by a core each."""
_MOST = 2**31 - 1


def _kernels() -> Any:
    return importlib.import_module("nile.exact.join.listed_kernels")


def suits(ts: tuple[Array, ...], window: int) -> bool:
    """Whether lists cost less than chains: the window is long or no core is free for parts."""
    tuples = ts[0].shape[0] + ts[1].shape[0]
    if tuples > _MOST:
        return False
    if tuples < 2 * SIZE or cores() == 1:
        return True
    span = max(int(each[-1]) - int(each[0]) for each in ts if each.shape[0])
    return bool(tuples * min(1.0, window / max(1, span)) > _SHORT)


def _above(codes: tuple[Array, ...]) -> int:
    return 1 + max(int(each.max(initial=-1)) for each in codes)


class Lists:
    """Two whole streams, listed by key.  Memory: 4 bytes a tuple and 16 a code.

    rows: int32 [codes, 4], of each key where its next left and right tuple stand in the lists, and the first in the
    window; listed: int32, the tuples of either stream by key.
    ts: int64 ns, not falling; codes: int64, below 0 for null; window: ns, below 0 for the whole streams; keys: a number
    above every code, where they are known to be dense (None: looked for; codes far apart are coded anew); whole: list
    tuples too whose key the other stream has not.
    """

    def __init__(
        self,
        ts: tuple[Array, ...],
        codes: tuple[Array, ...],
        window: int,
        keys: int | None = None,
        *,
        whole: bool = False,
    ) -> None:
        above = _above(codes) if keys is None else keys
        self._at = None if whole else in_all(codes, above)
        if self._at is not None:
            ts, codes = (tuple(each[at] for each, at in zip(two, self._at, strict=True)) for two in (ts, codes))
        if keys is None and above > _DENSE * (ts[0].shape[0] + ts[1].shape[0]) + SIZE:
            codes, above = dense_codes(codes, shared=True)
        self._ts, self._codes, self._window = ts, codes, window
        self.rows = np.zeros((above, 4), np.int32)
        self.listed = (np.empty(codes[0].shape[0], np.int32), np.empty(codes[1].shape[0], np.int32))
        for side in range(2):
            _kernels().list_keys(codes[side], side, self.rows, self.listed[side])

    @property
    def memory(self) -> int:
        """Bytes of lists and rows."""
        return self.rows.nbytes + sum(each.nbytes for each in self.listed)

    def pairs(self) -> Iterator[Array]:
        """Ordinals of the pairs in the order in which they complete, those of an arrival from its newest partner back:
        int64 [m, 2], m up to 65,536, columns contiguous.  Once: positions in the lists move on.
        """
        kernels = _kernels()
        progress = np.zeros(5, np.int64)
        ends = [each.shape[0] for each in self._ts]
        while progress[kernels.LEFT_DONE] < ends[0] or progress[kernels.RIGHT_DONE] < ends[1]:
            out = np.empty((2, _ROOM if sum(ends) > _ROOM >> 4 else _ROOM >> 4), np.int64)
            written = kernels.write_pairs(
                *self._ts, *self._codes, self._window, self.rows, *self.listed, progress, out[0], out[1]
            )
            if self._at is not None:
                for column, at in zip(out, self._at, strict=True):
                    column[:written] = at[column[:written]]
            if written:
                yield out[:, :written].T if 2 * written >= out.shape[1] else out[:, :written].copy().T
