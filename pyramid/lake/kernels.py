"""Kernels of the sketches of the lake's files."""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.summaries.kernels import kernel

Array = np.ndarray[Any, Any]

__all__ = ["peaks"]


@kernel
def peaks(ts: Array, edges: Array, lengths: Array, out: Array) -> None:
    """out[l, j]: the most tuples of lane l in any closed interval of lengths[j] (int64 [m], ns): int64 [lanes, m].

    ts: int64 [n], the times of lane l ascending at [edges[l], edges[l + 1]).  Cost: m passes.
    """
    for lane in range(edges.shape[0] - 1):
        for j in range(lengths.shape[0]):
            first = edges[lane]
            most = 0
            for i in range(edges[lane], edges[lane + 1]):
                while ts[i] - ts[first] > lengths[j]:
                    first += 1
                most = max(most, i - first + 1)
            out[lane, j] = most
