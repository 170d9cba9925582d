"""Decision trees (CART): grown of lists of numbers with names, kept as rows of a table, followed to name lists."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nile.mining.matches import NONE, named_lists
from nile.summaries.errors import ConfigError
from nile.summaries.heavy import pa

__all__ = ["Tree", "TreeGrower", "TreeMatcher", "grown", "tree_of"]

Array = np.ndarray[Any, Any]
_DEPTH, _LEAST = 10, 1
_TIE = 1e-12
"""Splits whose worth differs by no more, relatively, are worth the same: sums of fractions are rounded."""
_COLUMNS = ("node", "feature", "threshold", "below", "above", "share")
"""What a table that holds a tree has, beside the name of each node."""


@dataclass(frozen=True, slots=True)
class Tree:
    """A binary tree, its root first and every node before those below it.

    features: int64 [nodes], the place (from 0) of the number that is looked at, -1 in a leaf; thresholds: float64;
    below, above: int64, the node to go on with where the number is at most the threshold, and where it is more;
    names: the commonest of the node's examples; shares: float64, of its examples those of that name; counts: int64,
    how many examples.
    """

    features: Array
    thresholds: Array
    below: Array
    above: Array
    names: Sequence[Any]
    shares: Array
    counts: Array

    def leaves(self, values: Array) -> Array:
        """The leaf (int64 [n]) of each list (float64 [n, width]).  Cost: O(depth) a list."""
        at = np.zeros(len(values), np.int64)
        moving = np.arange(len(values))
        while len(moving := moving[self.features[at[moving]] >= 0]):
            here = at[moving]
            less = values[moving, self.features[here]] <= self.thresholds[here]
            at[moving] = np.where(less, self.below[here], self.above[here])
        return at


def grown(values: Array, names: Sequence[Any], depth: int, least: int) -> Tree:
    """The tree of examples, of at most `depth` splits from root to leaf and `least` examples in each leaf.

    values: float64 [n, width], n from 1; names: [n], all of one type.  Every node is split where the Gini impurity of
    the two parts, weighted by their sizes, is least: by a number's place and a threshold half-way between two of its
    values; of equals by the first place, then the lowest threshold.  A node whose examples have one name is a leaf.  Of
    names that are as common, the first in their order stands.  Exact, no randomness.
    Cost: O(width * n * (log n + names)) for each level.
    Source: Breiman, Friedman, Olshen and Stone, Classification and Regression Trees (1984); STEAM, section 7.3.
    """
    kinds = sorted(set(names))
    codes = np.searchsorted(np.array(kinds, object), np.array(names, object)).astype(np.int64)
    rows: list[list[Any]] = []
    waiting = [(np.arange(len(codes)), 0, -1, "")]
    while waiting:
        members, level, parent, side = waiting.pop()
        counts = np.bincount(codes[members], minlength=len(kinds))
        best = int(np.argmax(counts))
        node = len(rows)
        rows.append([-1, np.nan, -1, -1, kinds[best], counts[best] / len(members), len(members)])
        if parent >= 0:
            rows[parent][2 if side == "below" else 3] = node
        if level == depth or counts[best] == len(members):
            continue
        split = _split(values[members], codes[members], len(kinds), least)
        if split is None:
            continue
        rows[node][:2] = split
        less = values[members, split[0]] <= split[1]
        waiting += [(members[~less], level + 1, node, "above"), (members[less], level + 1, node, "below")]
    columns = list(zip(*rows, strict=True))
    whole = [np.array(columns[k], np.int64) for k in (0, 2, 3, 6)]
    numbers = [np.array(columns[k], np.float64) for k in (1, 5)]
    return Tree(whole[0], numbers[0], whole[1], whole[2], columns[4], numbers[1], whole[3])


def _split(values: Array, codes: Array, kinds: int, least: int) -> tuple[int, float] | None:
    """(place, threshold) of the best split; None: there is none."""
    n = len(codes)
    if n < 2 * least:
        return None
    order = np.argsort(values, axis=0, kind="stable")
    ranked, sorted_codes = np.take_along_axis(values, order, axis=0), codes[order]
    worth = np.zeros((n - 1, values.shape[1]))
    left = np.arange(1, n)[:, None]
    for kind in range(kinds):
        seen = np.cumsum(sorted_codes == kind, axis=0)
        worth += seen[:-1] ** 2 / left + (seen[-1] - seen[:-1]) ** 2 / (n - left)
    worth[ranked[1:] <= ranked[:-1]] = -1.0
    worth[: least - 1] = -1.0
    worth[n - least :] = -1.0
    most = worth.max(initial=-1.0)
    if most < 0:
        return None
    place, at = np.argwhere(worth.transpose() >= most * (1 - _TIE))[0].tolist()
    low, high = float(ranked[at, place]), float(ranked[at + 1, place])
    between = low / 2 + high / 2
    return place, between if low <= between < high else low


def tree_of(library: pa.Table) -> Tree:
    """The tree that a relation holds: the rows of one (`TreeGrower`), the newest where there are several, or examples,
    a name and a list, of which one is grown (depth 10, leaves of 1).  Raises ConfigError.
    """
    if not set(_COLUMNS) <= set(library.schema.names):
        names, values = named_lists(library)
        usable = np.flatnonzero(np.isfinite(values).all(axis=1))
        if not len(usable):
            raise ConfigError("MATCHES, library: needed an example whose numbers are all finite; got none; add one")
        return grown(values[usable], [names[k] for k in usable.tolist()], _DEPTH, _LEAST)
    if "tree" in library.schema.names and library.num_rows:
        numbers = library.column("tree").to_pylist()
        newest = max((each for each in numbers if each is not None), default=None)
        library = library.filter(pa.array([each == newest for each in numbers]))
    other = [
        field.name
        for field in library.schema
        if field.name not in (*_COLUMNS, "tree", "examples") and not pa.types.is_timestamp(field.type)
    ]
    rows = sorted(library.to_pylist(), key=lambda row: -1 if row["node"] is None else row["node"])
    inner = [row["feature"] is not None for row in rows]
    right = len(other) == 1 and rows and [row["node"] for row in rows] == list(range(len(rows)))
    for row, splits in zip(rows, inner, strict=True) if right else ():
        children = [row[side] for side in ("below", "above")]
        right = row["share"] is not None and (
            not splits
            or (
                row["feature"] >= 1
                and row["threshold"] is not None
                and all(each is not None and row["node"] < each < len(rows) for each in children)
            )
        )
        if not right:
            break
    if not right:
        raise ConfigError(
            "MATCHES, library: needed the rows of one TREE, nodes numbered from 0 and those below behind them, with "
            f"one further column, the name; got {', '.join(library.schema.names)} with {len(rows)} rows; select all "
            "that TREE gives"
        )

    def column(name: str, kind: Any, leaf: float) -> Array:
        return np.array([row[name] if splits else leaf for row, splits in zip(rows, inner, strict=True)], kind)

    return Tree(
        column("feature", np.int64, 0) - 1, column("threshold", np.float64, np.nan), column("below", np.int64, -1),
        column("above", np.int64, -1), [row[other[0]] for row in rows],
        np.array([row["share"] for row in rows], np.float64), np.zeros(len(rows), np.int64),
    )  # fmt: skip


class TreeMatcher:
    """The name of the leaf that each list comes to; "none" where fewer than 1 - `within` of its examples had it.

    distance: the share of the leaf's examples that have another name.  A list that is too short for the tree, with
    nulls, or of another length than the first is "none" at a distance of infinity.
    Cost: O(depth) a list.
    """

    def __init__(self, tree: Tree, within: float) -> None:
        """Raises ConfigError."""
        if not within >= 0:
            raise ConfigError(f"MATCHES: needed within from 0; got {within:g}")
        self.width: int | None = None
        self._tree, self._within = tree, within
        self._needed = int(tree.features.max()) + 1

    def push(self, at: Array, ts: Array, values: Array) -> list[tuple[int, int, tuple[Any, ...]]]:
        """values: float64 [n, width]; a row of another length is all NaN."""
        usable = np.isfinite(values).all(axis=1) & (0 < values.shape[1] >= self._needed)
        leaves = np.full(len(values), -1)
        leaves[usable] = self._tree.leaves(values[usable])
        found = []
        for place, time, leaf in zip(at.tolist(), ts.tolist(), leaves.tolist(), strict=True):
            distance = 1.0 - float(self._tree.shares[leaf]) if leaf >= 0 else float("inf")
            name = str(self._tree.names[leaf]) if leaf >= 0 and distance <= self._within else NONE
            found.append((place, time, (name, distance)))
        return found

    def finish(self) -> list[tuple[int, int, tuple[Any, ...]]]:
        return []


class TreeGrower:
    """The tree of the last `span` examples, a row for each node, after every `every` of them, and at the end if there
    are new ones; 0: at the end only.

    Gives the tree's number (from 1), the node's (from 0, the root; every node before those below it), the place of the
    number it looks at (from 1; nothing in a leaf), the threshold, the nodes for numbers up to it and above it, the
    share of its examples that have its name, and how many examples; the name stands under the key.
    An example without a name, with nulls or of another length than the first is none.
    Memory: span * (length + 1) numbers.  Cost: that of `grown` for each tree.
    """

    def __init__(self, depth: int, least: int, every: int, span: int) -> None:
        """Raises ConfigError."""
        if not (1 <= depth <= 64 and least >= 1 and every >= 0 and 1 <= span <= 1 << 20):
            raise ConfigError(
                "TREE: needed depth from 1 to 64, least from 1, every from 0 and span from 1 to 1048576; got "
                f"{depth}, {least}, {every} and {span}"
            )
        self.width: int | None = None
        self._depth, self._least, self._every = depth, least, every
        self._examples: deque[tuple[Any, Array]] = deque(maxlen=span)
        self._new, self._trees = 0, 0

    def push_keyed(
        self, at: Array, ts: Array, values: Array, keys: list[Any]
    ) -> list[tuple[Any, tuple[int, int, tuple[Any, ...]]]]:
        """(name of a node, the node).  values: float64 [n, width], a row of another length is all NaN; keys: names."""
        found: list[tuple[Any, tuple[int, int, tuple[Any, ...]]]] = []
        usable = np.isfinite(values).all(axis=1) & (values.shape[1] > 0)
        for k in np.flatnonzero(usable).tolist():
            if keys[k] is None:
                continue
            self._examples.append((keys[k], values[k].copy()))
            self._new += 1
            if self._new == self._every:
                found += self._rows(int(at[k]), int(ts[k]))
        return found

    def finish(self) -> list[tuple[Any, tuple[int, int, tuple[Any, ...]]]]:
        return self._rows(0, 0) if self._new else []

    def _rows(self, at: int, ts: int) -> list[tuple[Any, tuple[int, int, tuple[Any, ...]]]]:
        self._new, self._trees = 0, self._trees + 1
        values = np.array([each for _, each in self._examples])
        tree = grown(values, [name for name, _ in self._examples], self._depth, self._least)
        found = []
        for node, feature in enumerate(tree.features.tolist()):
            split: tuple[Any, ...] = (None, None, None, None)
            if feature >= 0:
                split = (feature + 1, float(tree.thresholds[node]), int(tree.below[node]), int(tree.above[node]))
            told = (self._trees, node, *split, float(tree.shares[node]), int(tree.counts[node]))
            found.append((tree.names[node], (at, ts, told)))
        return found
