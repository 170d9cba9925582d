"""Selections and projections on top of a pipeline, kept apart so that several queries can share its changes.

Cost: one pass over what changed.  Counts and captured states are those that the nodes have inside of a pipeline.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from nile.exact.pipeline.above import Projection, Selection
from nile.exact.pipeline.figures import Figures
from nile.exact.pipeline.pipeline import Changes
from nile.exact.pipeline.sources.incoming import picks_of, projected
from nile.exact.pipeline.threaded_selection import kept
from nile.exact.plan.algebra import Plan, Project, Select
from nile.exact.state.arrow import Array, pa
from nile.exact.state.columns import made, picked
from nile.exact.state.expire import nothing
from nile.exact.state.held import MOST, Held, State

__all__ = ["Passed", "Tail", "cut"]


def cut(plan: Plan, nodes: int) -> tuple[Plan, tuple[Select | Project, ...]]:
    """(what is below the topmost `nodes`, which select and project; those, from below)."""
    above: list[Select | Project] = []
    for _ in range(nodes):
        assert isinstance(plan, Select | Project)
        above.append(plan)
        plan = plan.input
    return plan, tuple(above[::-1])


class Passed(NamedTuple):
    """What nodes made of changes: those that are left, and how many came out of each of the nodes, +1 and -1.

    counts: empty where there is nothing to count.
    """

    changes: Sequence[Changes]
    counts: Sequence[tuple[int, int]]


_NOTHING = Passed([], ())


class Tail:
    """The nodes above one reader's pipeline, from below, and what has come out of each.

    append: whether only what comes is an output; the pipeline is `signed` then, for the nodes count what goes, too.
    counts: of each node signed tuples +1 and -1; held: rows that were last asked of each as they stood.
    """

    def __init__(self, nodes: Sequence[Select | Project], *, append: bool, threads: int | None = 1) -> None:
        """threads: that many changes may be tested on, None for all cores."""
        self.threads = threads
        self.nodes = tuple(nodes)
        self.append = append
        self.picks = picks_of(self.nodes)
        """Where the columns at the top are below, if nothing but that is done to rows; None: there is more to it."""
        self._passes = self.picks is not None or not self.nodes
        self.counts = [[0, 0] for _ in nodes]
        self.held: list[int | None] = [None] * len(nodes)

    def passed(self, changes: Sequence[Changes], *, selected: bool = False) -> Passed:
        """What the nodes make of changes.  Counts nothing yet (`add`): readers of equal nodes may share it.

        selected: the changes all satisfy the lowest node, a selection.
        """
        if not changes:
            return _NOTHING
        if (plain := self.plainly(changes)) is not None:
            if (picks := self.picks) is None:
                return plain
            schema = self.nodes[-1].schema
            own = [Changes(each.ts, each.sign, picked(each.given, picks, schema), each.gone) for each in plain.changes]
            return Passed(own, plain.counts)
        counts = [(0, 0)] * len(self.nodes)
        out = []
        for each in changes:
            ts, sign, rows, gone = each.ts, each.sign, each.given, each.gone
            for k, node in enumerate(self.nodes):
                rows, at = (rows, None) if selected and not k else _made(node, rows, self.threads)
                if at is not None:
                    ts, sign = ts.take(at), sign.take(at)
                    gone = int(np.count_nonzero(sign < 0)) if gone else 0
                came, went = counts[k]
                counts[k] = came + sign.shape[0] - gone, went + gone
                if not sign.shape[0]:
                    break
            else:
                if self.append and gone:
                    at = np.flatnonzero(sign > 0)
                    ts, sign, rows, gone = ts.take(at), sign.take(at), made(rows).take(pa.array(at)), 0
                if sign.shape[0]:
                    out.append(Changes(ts, sign, rows, gone))
        return Passed(out, counts)

    def plainly(self, changes: Sequence[Changes]) -> Passed | None:
        """As `passed`, with rows of which the columns are still to be picked (`picks`); None: there is more to do."""
        if not self._passes:
            return None
        n = gone = 0
        for each in changes:
            n += each.sign.shape[0]
            gone += each.counted if each.counted >= 0 else each.gone
        if gone and self.append:
            return None
        return Passed(changes, ((n - gone, gone),) * len(self.nodes))

    def add(self, passed: Passed) -> None:
        """Count what came out."""
        if not passed.counts:
            return
        for counted, (came, went) in zip(self.counts, passed.counts, strict=True):
            counted[0] += came
            counted[1] += went

    def count(self, came: int, went: int) -> None:
        """Count what came out of every node, found by others."""
        for counted in self.counts:
            counted[0] += came
            counted[1] += went

    def contents(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that stand above, made of those below."""
        for k, node in enumerate(self.nodes):
            rows = _made(node, rows, self.threads)[0]
            self.held[k] = rows.num_rows
        return made(rows)

    def figures(self, below: Sequence[Figures]) -> list[Figures]:
        """Of the nodes and, with their paths in the whole plan, of all below them."""
        out: list[Figures] = []
        for k in range(len(self.nodes) - 1, -1, -1):
            come, gone = self.counts[k]
            came = sum(self.counts[k - 1]) if k else below[0].positive + below[0].negative
            node = self.nodes[k]
            name = type(node).__name__.lower()
            out.append(Figures(node, (0,) * len(out), name, came, come, gone, self.held[k], 0))
        lead = (0,) * len(out)
        for each in below:
            path = None if each.path is None else (*lead, *each.path)
            out.append(
                Figures(each.node, path, each.name, each.tuples, each.positive, each.negative, each.held, each.memory)
            )
        return out

    def capture(self) -> list[State]:
        """The state of each node, as of one inside of a pipeline."""
        return [
            {"is": _kind(node), "come": come, "gone": gone, "holds": {}}
            for node, (come, gone) in zip(self.nodes, self.counts, strict=True)
        ]

    def restore(self, states: Sequence[State]) -> None:
        """Put what was captured into a new one of the same nodes.  Raises EnvelopeError."""
        for k, (node, state) in enumerate(zip(self.nodes, states, strict=True)):
            held = Held(state, "state of a query")
            if (given := held.text("is")) != _kind(node):
                held.refuse(f"the state of a {_kind(node)}", given)
            self.counts[k] = [held.integer("come", 0, MOST), held.integer("gone", 0, MOST)]
            held.part("holds").end()
            held.end()


def _kind(node: Select | Project) -> str:
    return Selection.KIND if isinstance(node, Select) else Projection.KIND


def _made(node: Select | Project, rows: Any, threads: int | None) -> tuple[Any, Array | None]:
    """(what a node makes of rows, `Columns` too; the places of those it keeps: int64, rising, None: all)."""
    if isinstance(node, Project):
        if not rows.num_rows:
            return nothing(node.schema), None
        return projected(rows, node), None
    return kept(rows, node.test, threads) if rows.num_rows else (rows, None)
