"""Clusters of lists of numbers, kept while they come: each list joins the cluster nearest to it, or begins one."""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.summaries.errors import ConfigError
from nile.summaries.lazy import lazy

__all__ = ["Clusterer"]

Array = np.ndarray[Any, Any]
kernels = lazy("nile.mining.kernels")
_LEAST_ROOM = 8


class Clusterer:
    """The cluster of each list: the one whose centre is nearest, within `radius`; else a new one.

    A cluster is the mean of its lists, each weighing half as much after `half_life` seconds; without one all weigh the
    same for ever.  At most `most` clusters are kept: a new one takes the place of the lightest (of equals, the oldest).
    Numbers of clusters count from 1 and are not used again.  The first list tells how long lists are; what has
    another length, nulls, or numbers without an end belongs to no cluster.
    Gives the cluster, the Euclidean distance from its centre before the list came (nothing for the first of a cluster)
    and the cluster's weight with it.
    Memory: most * (length + 3) numbers.  Cost: O(most * length) a list.
    Source: STEAM, section 7.2 (clustering of streams); one-pass clustering as CluStream's and DenStream's first phase.
    """

    def __init__(self, radius: float, half_life: float, most: int) -> None:
        """Raises ConfigError."""
        if not (0 < radius < float("inf") and half_life > 0 and 1 <= most <= 1 << 16):
            raise ConfigError(
                "CLUSTERS: needed radius above 0, half_life above 0 and most from 1 to 65536; got "
                f"{radius:g}, {half_life:g} and {most}"
            )
        self.width: int | None = None
        self._radius, self._half_life, self._most = radius, half_life * 1e9, most
        self._centres = np.zeros((0, 0))
        self._weights, self._times, self._ids = np.zeros(0), np.zeros(0, np.int64), np.zeros(0, np.int64)
        self._counts = np.zeros(2, np.int64)  # how many there are, how many there have been

    def push(self, at: Array, ts: Array, values: Array) -> list[tuple[int, int, tuple[Any, ...]]]:
        """values: float64 [n, width]; a row of another length is all NaN."""
        usable = np.isfinite(values).all(axis=1) & (values.shape[1] > 0)
        self._make_room(values.shape[1], int(usable.sum()))
        which, distances, weights = kernels.clustered(
            np.ascontiguousarray(values), np.ascontiguousarray(ts), usable, self._radius, self._half_life, self._most,
            self._centres, self._weights, self._times, self._ids, self._counts,
        )  # fmt: skip
        columns = zip(at.tolist(), ts.tolist(), which.tolist(), distances.tolist(), weights.tolist(), strict=True)
        return [
            (place, time, (cluster, None if distance < 0 else distance, weight) if cluster else (None, None, None))
            for place, time, cluster, distance, weight in columns
        ]

    def finish(self) -> list[tuple[int, int, tuple[Any, ...]]]:
        return []

    def _make_room(self, width: int, lists: int) -> None:
        """Each list may begin a cluster."""
        room = min(self._most, int(self._counts[0]) + lists)
        if self._centres.shape[0] >= room and self._centres.shape[1] == width:
            return
        room = min(self._most, max(2 * self._centres.shape[0], room, _LEAST_ROOM))
        held = int(self._counts[0])
        for name in ("_centres", "_weights", "_times", "_ids"):
            old = getattr(self, name)
            new = np.zeros((room, width) if name == "_centres" else room, old.dtype)
            if held:
                new[:held] = old[:held]
            setattr(self, name, new)
