"""Selections and projections on top of a pipeline, kept apart so that several queries can share its changes.

Cost: one pass over what changed.  Counts and captured states are those that the nodes have inside of a pipeline.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nile.exact.pipeline.above import Projection, Selection
from nile.exact.pipeline.figures import Figures
from nile.exact.pipeline.pieces import kept
from nile.exact.pipeline.pipeline import Changes
from nile.exact.pipeline.sources.leaf import conformed
from nile.exact.plan.algebra import Plan, Project, Select
from nile.exact.state.arrow import Array, pa
from nile.exact.state.expire import nothing
from nile.exact.state.held import MOST, Held, State

__all__ = ["Passed", "Tail", "cut"]

_NO_COUNTS = np.zeros((0, 2), np.int64)


def cut(plan: Plan, nodes: int) -> tuple[Plan, tuple[Select | Project, ...]]:
    """(what is below the topmost `nodes`, which select and project; those, from below)."""
    above: list[Select | Project] = []
    for _ in range(nodes):
        assert isinstance(plan, Select | Project)
        above.append(plan)
        plan = plan.input
    return plan, tuple(above[::-1])


@dataclass(frozen=True, slots=True)
class Passed:
    """What nodes made of changes: those that are left, and how many came out of each (int64 [nodes, 2]: +1, -1).

    counts: [0, 2] where there is nothing to count.
    """

    changes: list[Changes]
    counts: Array


class Tail:
    """The nodes above one reader's pipeline, from below, and what has come out of each.

    append: whether only what comes is an output; the pipeline is `signed` then, for the nodes count what goes, too.
    counts: int64 [nodes, 2], signed tuples +1 and -1; held: rows that were last asked of each as they stood.
    """

    def __init__(self, nodes: Sequence[Select | Project], *, append: bool, threads: int | None = 1) -> None:
        """threads: that many changes may be tested on, None for all cores."""
        self.threads = threads
        self.nodes = tuple(nodes)
        self.append = append
        self.counts = np.zeros((len(nodes), 2), np.int64)
        self.held: list[int | None] = [None] * len(nodes)

    def passed(self, changes: Sequence[Changes], *, selected: bool = False) -> Passed:
        """What the nodes make of changes.  Counts nothing yet (`add`): readers of equal nodes may share it.

        selected: the changes all satisfy the lowest node, a selection.
        """
        if not changes or not (self.nodes or self.append):
            return Passed([each for each in changes if len(each)], _NO_COUNTS)
        counts = np.zeros((len(self.nodes), 2), np.int64)
        out = []
        for each in changes:
            ts, sign, rows = each.ts, each.sign, each.rows
            gone = int(np.count_nonzero(sign < 0))
            for k, node in enumerate(self.nodes):
                rows, yes = (rows, None) if selected and not k else _made(node, rows, self.threads)
                if yes is not None:
                    ts, sign = ts[yes], sign[yes]
                    gone = int(np.count_nonzero(sign < 0)) if gone else 0
                counts[k] += sign.shape[0] - gone, gone
                if not sign.shape[0]:
                    break
            else:
                if self.append and gone:
                    come = sign > 0
                    ts, sign, rows = ts[come], sign[come], rows.filter(pa.array(come))
                if sign.shape[0]:
                    out.append(Changes(ts, sign, rows))
        return Passed(out, counts)

    def add(self, passed: Passed) -> None:
        """Count what came out."""
        if passed.counts.shape[0]:
            self.counts += passed.counts

    def contents(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that stand above, made of those below."""
        for k, node in enumerate(self.nodes):
            rows = _made(node, rows, self.threads)[0]
            self.held[k] = rows.num_rows
        return rows

    def figures(self, below: Sequence[Figures]) -> list[Figures]:
        """Of the nodes and, with their paths in the whole plan, of all below them."""
        out: list[Figures] = []
        for k in range(len(self.nodes) - 1, -1, -1):
            come, gone = self.counts[k].tolist()
            came = int(self.counts[k - 1].sum()) if k else below[0].positive + below[0].negative
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
            {"is": _kind(node), "come": int(come), "gone": int(gone), "holds": {}}
            for node, (come, gone) in zip(self.nodes, self.counts, strict=True)
        ]

    def restore(self, states: Sequence[State]) -> None:
        """Put what was captured into a new one of the same nodes.  Raises EnvelopeError."""
        for k, (node, state) in enumerate(zip(self.nodes, states, strict=True)):
            held = Held(state, "state of a query")
            if (given := held.text("is")) != _kind(node):
                held.refuse(f"the state of a {_kind(node)}", given)
            self.counts[k] = held.integer("come", 0, MOST), held.integer("gone", 0, MOST)
            held.part("holds").end()
            held.end()


def _kind(node: Select | Project) -> str:
    return Selection.KIND if isinstance(node, Select) else Projection.KIND


def _made(node: Select | Project, rows: pa.RecordBatch, threads: int | None) -> tuple[pa.RecordBatch, Array | None]:
    """(what a node makes of rows, which of them it keeps: bool [n], None all)."""
    if isinstance(node, Project):
        if not rows.num_rows:
            return nothing(node.schema), None
        return conformed(node.make(rows), node.schema), None
    return kept(rows, node.test, threads) if rows.num_rows else (rows, None)
