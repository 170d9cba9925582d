"""A part of several standing plans at work once, and how plans come to read it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nile.exact.pipeline.build import build
from nile.exact.pipeline.schedule import Clock
from nile.exact.pipeline.sources.part import Part, narrowed
from nile.exact.state.held import State
from nile.exact.state.words import Encoder
from nile.execution.exact.physical import Compiler
from nile.execution.live.shared.likeness import same
from nile.execution.live.shared.subplan import Subplan, union_of
from nile.execution.reading import Naming
from nile.execution.values import schema_of
from nile.sql.plan import Plan, Relation, Stream, leaves_of
from nile.summaries.heavy import pa

if TYPE_CHECKING:
    from nile.execution.live.running import Running

__all__ = ["Common", "share"]


class Common:
    """node: the part, with the columns that any of its plans reads; plans: those that read it."""

    def __init__(self, node: Plan, like: Subplan, states: Sequence[State], done: int, threads: int | None) -> None:
        """like: one of those it stands for; states: of its operators, after the instant `done`."""
        self.node = node
        self.plans: list[Running] = []
        self._leaves = [leaf for leaf in leaves_of(node) if isinstance(leaf, Stream)]
        compiler = Compiler(lambda leaf: schema_of(leaf.fields), _nothing_stored, like.key[1] or "chain")
        self.part = Part(*build(compiler.plan(node), Clock(threads=threads), like.reader))
        self.part.restore(states, done)
        self._naming = Naming()
        self._came = {leaf.name: 0 for leaf in self._leaves}
        self._seen: dict[int, dict[str, int]] = {}

    def join(self, plan: Running) -> None:
        """One more, that has seen what the others have."""
        self.plans.append(plan)
        self._seen[id(plan)] = dict(self._came)

    def leave(self, plan: Running) -> None:
        """One less."""
        self.plans.remove(plan)
        del self._seen[id(plan)]

    def arrived(self, plan: Running, name: str, ts: Any, batch: Any) -> None:
        """Tuples that come to one of its plans, the same to all: the first one brings them.  batch: all columns."""
        seen, n = self._seen[id(plan)], ts.shape[0]
        if n and seen[name] == self._came[name]:
            for leaf in self._leaves:
                if leaf.name == name:
                    self.part.push(leaf.alias, ts, self._naming.named(leaf, batch))
            self._came[name] += n
        seen[name] += n


def share(mine: Running, theirs: Running) -> Common | None:
    """Have a part of two plans run once, for them and all who share it: where; None: they do not go on alike.

    They do if the states are equal but for what they have counted and for columns that only one of them reads.
    Cost: O(1) where they have come to different instants, else O(state).
    """
    if not (_may(mine) and _may(theirs)) or mine.pipeline.reached != theirs.pipeline.reached:
        return None
    (node, own), (other, states) = _of(theirs), _of(mine)
    both = union_of(node, other)
    names = None if node == other else [*_columns(node) & _columns(other)]
    common = [narrowed(each, names) for each in (own, states)]
    if not same({"operators": common[0]}, {"operators": common[1]}):
        return None
    joined = next(
        (each.common for each in (theirs, mine) if each.common is not None and each.common.node == both), None
    )
    if joined is None:
        if both not in (node, other) and (_mended(mine) or _mended(theirs)) and not _told_apart(common[0]):
            return None
        assert theirs.subplan is not None
        wide = own if both == node else states if both == other else _zipped(own, states)
        joined = Common(both, theirs.subplan, wide, theirs.stages.done, theirs.threads)
    for each in (theirs, mine):
        for plan in [each] if each.common is None else list(each.common.plans):
            if plan.common is not joined:
                plan.run_on(joined)
    return joined


def _may(plan: Running) -> bool:
    """Whether all readers have taken all there was, nothing waits, and it has begun."""
    level = all(each._turn == plan.turn for each in plan.readers)
    pipeline = plan.pipeline
    return level and not pipeline.waits and not pipeline.deferred and plan.gate is None and pipeline.has_begun


def _mended(plan: Running) -> bool:
    """Whether equal tuples may stand in another order than they came: not where that of another plan is the same."""
    return all(each.mended for each in ([plan] if plan.common is None else plan.common.plans))


def _of(plan: Running) -> tuple[Plan, list[State]]:
    """(the part that may be shared, with its columns, the states of its operators)."""
    if plan.common is not None:
        return plan.common.node, plan.common.part.capture()
    assert plan.subplan is not None
    return plan.subplan.node, plan.pipeline.capture_part(plan.subplan.made)


def _columns(node: Plan) -> set[str]:
    return {field.name for leaf in leaves_of(node) for field in leaf.fields}


def _zipped(one: Any, other: Any) -> Any:
    """A state with the columns of both of two that are equal but for these, row by row."""
    if isinstance(one, dict):
        return {name: _zipped(each, other[name]) for name, each in one.items()}
    if isinstance(one, list):
        return [_zipped(mine, theirs) for mine, theirs in zip(one, other, strict=True)]
    if not isinstance(one, pa.RecordBatch):
        return one
    columns = {each.schema.field(k): column for each in (other, one) for k, column in enumerate(each.columns)}
    fields = sorted(columns, key=lambda field: field.name)
    return pa.RecordBatch.from_arrays([columns[field] for field in fields], schema=pa.schema(fields))


def _told_apart(states: Sequence[State]) -> bool:
    """Whether in a join's windows no two tuples of one time are equal in the columns of both: then row belongs to row.

    After tuples were taken back, equal ones may stand in another order in each.
    """
    for window in (each for state in states for each in state["holds"].get("windows", ())):
        rows = window["rows"]
        words = Encoder(rows.schema.types, exact=True).encode(rows.columns, rows.num_rows)
        if np.unique(np.column_stack([window["ts"], words]), axis=0).shape[0] < rows.num_rows:
            return False
    return True


def _nothing_stored(leaf: Relation) -> Any:
    raise AssertionError(leaf)
