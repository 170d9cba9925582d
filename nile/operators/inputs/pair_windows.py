"""Windows between pairs of streams, where a join has not one for all: graphs, paths, directed paths."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nile.base.durations import format_duration
from nile.exact.join.window_graph import WindowGraph

__all__ = ["PairWindows"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class PairWindows:
    """|ts_i - ts_j| <= ns for every (i, j, ns), over n streams that chains of them tie together.

    directed: DWINDOW: the times also do not fall along the path as it is written, or do not rise along all of it.
    Source: window joins (TR 02-010), sections 1 and 5.
    """

    streams: int
    windows: tuple[tuple[int, int, int], ...]
    directed: bool = False

    @property
    def widest(self) -> int:
        """The window that every two tuples of an output lie in: what follows for the pair that is furthest apart, ns.

        Raises ConfigError for windows that leave a stream untied.
        """
        if self.directed:
            return WindowGraph.directed(self.streams, self.windows).widest
        return WindowGraph.of(self.streams, {(i, j): ns for i, j, ns in self.windows}).widest

    def passing(self, times: Array) -> Array:
        """Which combinations keep them: bool [c].  times: int64 [c, n] ns, of each stream's member."""
        forth = np.ones(times.shape[0], bool)
        back = forth.copy()
        for i, j, ns in self.windows:
            apart = times[:, j] - times[:, i]
            if self.directed:
                forth &= (apart >= 0) & (apart <= ns)
                back &= (apart <= 0) & (apart >= -ns)
            else:
                forth &= np.abs(apart) <= ns
        return forth | back if self.directed else forth

    def words(self, names: tuple[str, ...]) -> str:
        """As one would write them."""
        told = [f"({names[i]}, {names[j]}) = '{format_duration(ns)}'" for i, j, ns in self.windows]
        return f"{'DWINDOW' if self.directed else 'WINDOW'} {' AND '.join(told)}"
