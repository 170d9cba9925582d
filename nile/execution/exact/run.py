"""Exact answers: a bound plan, run one of four ways (`nile.execution.choice` says which)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

from nile.answers.progress import Run
from nile.answers.tabular import row_bytes, with_room_for_text
from nile.base.spill import Spills
from nile.exact.pipeline.pipeline import Changes, Pipeline
from nile.exact.plan import algebra
from nile.exact.state.columns import stamped
from nile.execution.choice import Choice, is_chain, is_flat_join
from nile.execution.exact.actual import Actual, actual_of
from nile.execution.exact.coming import Coming
from nile.execution.exact.flow import Flow, Home, flows
from nile.execution.exact.joining import Side, in_pairs, joined, refuse_beyond
from nile.execution.exact.paired import parts_by_key
from nile.execution.exact.physical import Compiler, with_selections
from nile.execution.exact.relational import Path, Relational
from nile.execution.exact.several import is_countable
from nile.execution.exact.unnesting import unnested_rows
from nile.execution.key_columns import key_columns, looked_at
from nile.execution.reading import Leaf, Reading
from nile.execution.shape import Shape
from nile.execution.values import filtered, maker, schema_of
from nile.operators.common.rows import row_codes
from nile.sql.plan import (
    Every,
    Filter,
    Join,
    Limit,
    OnClose,
    Plan,
    Project,
    Query,
    Relation,
    Rows,
    Slide,
    Stream,
    Unnest,
    inputs_of,
    leaves_of,
    walk,
)
from nile.streams.accounting import Accounting
from nile.summaries.heavy import pa

__all__ = ["ExactRun", "changed", "output_schema", "pipeline_of"]

Array = np.ndarray[Any, Any]


def output_schema(query: Query, emit: str) -> pa.Schema:
    """The columns of an answer: the query's; of changes after `_ts` (timestamp[ns]) and `_sign` (int8, 1 or -1)."""
    schema = schema_of(query.plan.fields)
    if emit == "stream":
        return pa.schema([("_ts", pa.timestamp("ns")), *schema])
    if emit != "changes":
        return schema
    return pa.schema([("_ts", pa.timestamp("ns")), ("_sign", pa.int8()), *schema])


def changed(found: Changes, schema: pa.Schema, emit: str) -> pa.RecordBatch:
    """What changed, as a batch of `output_schema`."""
    return stamped(found.ts, found.sign, found.given, schema, 2 if emit == "changes" else 1 if emit == "stream" else 0)


def pipeline_of(plan: algebra.Plan, choice: Choice, **how: Any) -> Pipeline:
    """The pipeline of a plan; a stream is what it appends.  how: as of `Pipeline`."""
    emit = "append" if choice.emit == "stream" else choice.emit
    return Pipeline(plan, choice.scheduling, emit, **how)  # type: ignore[arg-type]


def last_instant(plan: Plan, last: int | None) -> int | None:
    """How far a query of finite streams goes, whose last tuple came at `last`: to a tick, or until windows end."""
    match plan:
        case Every() if last is not None:
            return -(-last // plan.step) * plan.step
        case OnClose() if last is not None:
            return last + plan.span
        case _:
            return last


class ExactRun(Run):
    """One run of a query.  Nothing is read before the first batch is asked for.

    accounting: of each alias, as far as it was read; counts: rows that came out of each node of the plan, by path;
    held: bytes of input that were kept; costs: what operators counted; actual: what a pipeline's operators did, by
    path; shapes: what its joins were.
    """

    def __init__(self, home: Home, query: Query, choice: Choice) -> None:
        self.query = query
        self.choice = choice
        self.schema = output_schema(query, choice.emit)
        self.counts: dict[Path, int] = {}
        self.shapes: list[Shape] = []
        self._state_bytes = 0
        self.held = 0
        self.costs: Mapping[str, int] = {}
        self.actual: Mapping[Path | None, Actual] = {}
        self._home = home
        self._spills = Spills(home.scratch)
        self._reading = Reading(home, query.plan, key_columns(query.plan))
        self._plain = schema_of(query.plan.fields)

    @property
    def accounting(self) -> dict[str, Accounting]:
        """in = applied + late + shed + rejected, of each alias."""
        return self._reading.accounting

    @property
    def memory(self) -> int:
        """Bytes of the operators' state, beyond input and output."""
        return self._state_bytes

    @property
    def spilled(self) -> int:
        return self._spills.written + self._reading.spilled

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The answer, as it is found.  Raises what sources, keys and memory raise."""
        match self.choice.way:
            case "pass":
                found = self._passed()
            case "whole":
                found = self._whole()
            case "join":
                found = self._joined()
            case _:
                plan = with_selections(self.query.plan)
                found = self._pipelined(plan, self._coming(plan))
        for batch in with_room_for_text(found):
            if batch.num_rows:
                yield batch

    def _passed(self) -> Iterator[pa.RecordBatch]:
        yield from self._limited(self._chain_batches)

    def _limited(self, found: Callable[[Plan, Path], Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
        """What is found of the plan, or of that under the LIMIT at its top."""
        plan: Plan = self.query.plan
        path: Path = ()
        skip, room = 0, None
        if isinstance(plan, Limit):
            skip, room, plan, path = plan.offset, plan.count, plan.input, (0,)
            self.held_whole = self.held_whole and room is None
        for batch in found(plan, path):
            gone = min(skip, batch.num_rows)
            skip -= gone
            part = batch.slice(gone, room)
            room = None if room is None else room - part.num_rows
            if path:
                self._count((), part.num_rows)
            yield part
            if room == 0:
                return

    def _chain_batches(self, plan: Plan, path: Path) -> Iterator[pa.RecordBatch]:
        if isinstance(plan, Filter | Project):
            make = maker(plan.items) if isinstance(plan, Project) else None
            for batch in self._chain_batches(plan.input, (*path, 0)):
                out = filtered(plan.condition, batch) if make is None else make(batch)  # type: ignore[union-attr]
                self._count(path, out.num_rows)
                yield out
        elif isinstance(plan, Unnest):
            for batch in self._chain_batches(plan.input, (*path, 0)):
                out = unnested_rows(plan, batch)[0]
                self._count(path, out.num_rows)
                yield out
        elif isinstance(plan, Stream):
            for _, batch, _ in self._reading.stream_batches(plan):
                self._count(path, batch.num_rows)
                yield batch
        else:
            assert isinstance(plan, Relation)
            for batch in self._reading.relation_batches(plan):
                self._count(path, batch.num_rows)
                yield batch

    def _count(self, path: Path, rows: int) -> None:
        self.counts[path] = self.counts.get(path, 0) + rows

    def _load(self, leaf: Stream | Relation) -> Leaf:
        loaded = self._reading.whole(leaf)
        self.held += loaded.batch.nbytes
        return loaded

    def _whole(self) -> Iterator[pa.RecordBatch]:
        plan: Plan = self.query.plan
        flat = is_flat_join(plan.input if isinstance(plan, Limit) else plan)
        parted = flat and parts_by_key(plan)
        whole = flat and self.held_whole and (parted or is_countable(plan))
        if not whole and flows(self._home, plan):
            yield from self._flowing(parted)
            return
        self._reading.load(leaves_of(plan))
        leaves = {leaf.alias: self._load(leaf) for leaf in leaves_of(plan)}
        now = max((leaf.last for leaf in leaves.values() if leaf.last is not None), default=None)
        bound = _bounds(self.query.plan)

        def leaf(node: Stream | Relation) -> Side:
            held = leaves[node.alias]
            if isinstance(node, Relation) or now is None:
                return Side(held.batch, held.ts)
            return _in_window(node, held, now, bound.get(node.alias))

        if flat:
            yield from self._limited(lambda below, path: self._flat(below, path, leaf))
        else:
            yield Relational(leaf, self.counts, self.shapes).rows(plan)

    def _flowing(self, parted: bool) -> Iterator[pa.RecordBatch]:
        """The snapshot of rows that memory may not hold.  parted: of one join, whose parts come as they are."""
        flow = Flow(self._reading, self.counts, self._spills, self.query.plan)
        try:
            if parted:
                yield from self._limited(lambda below, path: self._flat(below, path, self._side, flow))
            else:
                yield from flow.rows(self.query.plan)
        finally:
            self._spills.close()

    def _joined(self) -> Iterator[pa.RecordBatch]:
        """Streams that are waited for are joined as they come; beside stored relations one, piece by piece."""
        plan = self.query.plan
        timed = [leaf for leaf in leaves_of(plan) if isinstance(leaf, Stream)]
        paired = None if self.choice.strategy else in_pairs(plan)
        can_come = paired is not None or (len(timed) == 1 and not self.choice.algorithm)
        coming = self._coming(plan) if can_come else None
        if coming is None or not coming.waits():
            yield from self._flat(plan, (), lambda node: self._side(node, coming))
        elif paired is not None:
            yield from self._pipelined(paired, coming)
        else:
            yield from self._beside_stored(plan, coming)

    def _beside_stored(self, plan: Plan, coming: Coming) -> Iterator[pa.RecordBatch]:
        """One stream, piece by piece, joined with stored relations."""
        sides = {leaf.alias: self._side(leaf) for leaf in leaves_of(plan) if isinstance(leaf, Relation)}
        again: dict[Path, int] = {}  # what is looked at with every piece, but counts once
        for piece in coming:
            for alias, ts, rows in piece.tuples:
                sides[alias] = Side(rows, ts)
                yield from self._flat(plan, (), lambda node: sides[node.alias])
                self.counts.update(again)
                again = again or {at: self.counts[at] for at in _stored_at(plan, ())}

    def _side(self, node: Stream | Relation, coming: Coming | None = None) -> Side:
        if coming is None or isinstance(node, Relation):
            held = self._load(node)
        else:
            held = coming.whole(node.alias)
            self.held += held.batch.nbytes
        window = node.window if isinstance(node, Stream) else None
        return Side(held.batch, held.ts, window if isinstance(window, int) else None)

    def _coming(self, plan: Plan) -> Coming:
        return Coming(self._reading, [leaf for leaf in leaves_of(plan) if isinstance(leaf, Stream)])

    def _flat(
        self, plan: Plan, path: Path, leaf: Callable[[Stream | Relation], Side], flow: Flow | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Selections and projections of one join, whose outputs pass through as they are found.

        flow: what gives the inputs in parts; None: all of them are joined at once.
        """
        above: list[tuple[Filter | Project, Path]] = []
        while isinstance(plan, Filter | Project):
            above.append((plan, path))
            plan, path = plan.input, (*path, 0)
        assert isinstance(plan, Join)
        codes = None
        if flow is not None:
            parts = flow.sides_in_parts(plan, path)
        else:
            inputs = Relational(leaf, self.counts)
            sides = [inputs.side(each, (*path, k)) for k, each in enumerate(plan.inputs)]
            parts = iter([sides])
            if self.held_whole and plan.condition is None and not any(isinstance(node, Filter) for node, _ in above):
                codes = refuse_beyond(plan, sides, row_bytes(self.schema), self._reading.threads)
        makes = [(node, maker(node.items) if isinstance(node, Project) else None, at) for node, at in above[::-1]]
        spent: dict[str, int] = {}
        choice = self.choice
        wanted = looked_at([node for node, _ in above])
        join = partial(
            joined, plan, algorithm=choice.algorithm, strategy=choice.strategy, spent=spent, wanted=wanted,
            threads=self._reading.threads, codes=codes, shapes=self.shapes,
        )  # fmt: skip
        for found in chain.from_iterable(map(join, parts)):
            batch = found
            self._count(path, batch.num_rows)
            for node, make, at in makes:
                batch = filtered(node.condition, batch) if make is None else make(batch)  # type: ignore[union-attr]
                self._count(at, batch.num_rows)
            yield batch
        self._state_bytes = spent.pop("memory", 0)
        self.costs = spent

    def _pipelined(self, plan: Plan, coming: Coming) -> Iterator[pa.RecordBatch]:
        """The changes that streams make, while they are read; nothing is kept of them but the operators' state."""
        stored = [leaf for leaf in leaves_of(plan) if isinstance(leaf, Relation)]
        held = {leaf.alias: self._load(leaf) for leaf in stored if not leaf.changes}
        compiler = Compiler(
            self._reading.schema,
            lambda leaf: pa.Table.from_batches([held[leaf.alias].batch]),
            self.choice.algorithm or "chain",
        )
        pipeline = pipeline_of(compiler.plan(plan), self.choice)
        ends: list[int | None] = []
        for leaf in stored:
            if leaf.changes:
                log = self._reading.changes(leaf)
                ends.append(log.last)
                yield from self._emitted(pipeline.push(leaf.alias, log.ts, log.batch))
                yield from self._emitted(pipeline.close(leaf.alias))
        for piece in coming:
            for alias, ts, rows in piece.tuples:
                if ts.shape[0]:
                    yield from self._emitted(pipeline.push(alias, ts, rows))
            if piece.sure is not None:  # tuples that a leaf's own condition left out say how late it is, too
                yield from self._emitted(pipeline.advance(piece.sure, certain=False))
        last = max((at for at in (coming.last, *ends) if at is not None), default=None)
        yield from self._emitted(pipeline.finish(last_instant(self.query.plan, last)))
        self._state_bytes = int(pipeline.memory)
        self.costs = dict(pipeline.costs)
        self.actual = actual_of(pipeline.operators, compiler.made)

    def _emitted(self, changes: Sequence[Changes]) -> Iterator[pa.RecordBatch]:
        for found in changes:
            self._count((), len(found))
            yield changed(found, self.schema, self.choice.emit)


def _stored_at(plan: Plan, path: Path) -> list[Path]:
    """The paths of a plan's nodes that have no stream below them."""
    own = [path] if not any(isinstance(leaf, Stream) for leaf in leaves_of(plan)) else []
    return own + [at for k, each in enumerate(inputs_of(plan)) for at in _stored_at(each, (*path, k))]


def _in_window(node: Stream, held: Leaf, now: int, bound: int | None) -> Side:
    """The tuples of a stream that its window holds at `now`."""
    assert held.ts is not None
    begin = 0
    if isinstance(node.window, Rows) and node.window.by:
        codes, _ = row_codes(
            [held.batch.column(held.batch.schema.get_field_index(n)) for n in node.window.by], len(held.ts)
        )
        last = _last_of_each(codes, node.window.count)
        return Side(held.batch.take(pa.array(last)), held.ts[last])
    if isinstance(node.window, Slide):
        at = now // node.window.slide * node.window.slide
        begin, end = np.searchsorted(held.ts, [at - node.window.size, at + 1], side="left").tolist()
        return Side(held.batch.slice(begin, end - begin), held.ts[begin:end])
    if isinstance(node.window, Rows):
        begin = max(0, held.ts.shape[0] - node.window.count)
    else:
        widths = [width for width in (node.window, bound) if width is not None]
        if widths:
            begin = int(np.searchsorted(held.ts, now - min(widths), side="left"))
    window = (node.window or None) if isinstance(node.window, int) else None
    return Side(held.batch.slice(begin), held.ts[begin:], window)


def _last_of_each(codes: Array, count: int) -> Array:
    """The places of the last `count` of each code, in order: int64 [m]."""
    order = np.argsort(codes, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(codes[order])) + 1, codes.shape[0])
    left = ends[np.searchsorted(ends, np.arange(codes.shape[0]), side="right")] - np.arange(codes.shape[0])
    return np.sort(order[left <= count])


def _bounds(plan: Plan) -> dict[str, int]:
    """The narrowest window that constraints put on each stream: both ends of a pair lie in its window at an instant."""
    found: dict[str, int] = {}
    for node in walk(plan):
        for each in node.constraints if isinstance(node, Join) else ():
            for at in (each.left, each.right):
                if isinstance(node, Join) and is_chain(node.inputs[at]):
                    alias = leaves_of(node.inputs[at])[0].alias
                    found[alias] = min(each.window, found.get(alias, each.window))
    return found
