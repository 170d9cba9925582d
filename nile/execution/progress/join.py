"""Joins of two streams over everything kept, as growing answers."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from nile.answers.progress import Progressive
from nile.execution.approximate.shape import Shape
from nile.execution.key_columns import equalities, one_key
from nile.execution.options import Options
from nile.execution.progress.input import Histories, Kept, bounded, check_stream, own_columns, renamed
from nile.execution.progress.output import Found
from nile.execution.progress.selection import grids_text
from nile.execution.values import all_of, filtered
from nile.expressions.evaluate import evaluate_mask
from nile.expressions.tree import Node, columns_of, conjuncts, rename
from nile.operators.history.desc import DescendingJoin
from nile.operators.history.join import HistoryJoin, HistorySide, Pairs, Ranges
from nile.operators.history.outliers import OutlierJoin
from nile.operators.history.weighted import WeightedJoin
from nile.sql.plan import Filter, Join, Query, Stream
from nile.summaries.errors import ConfigError, NotYet
from nile.summaries.estimate import Estimate
from nile.summaries.heavy import pa
from nile.summaries.intervals import StratifiedSample, nothing_seen
from nile.summaries.key_types import key_family

__all__ = ["ProgressiveJoin"]

DEFAULT_CAP = 4


class ProgressiveJoin(Progressive):
    """SELECT columns FROM two streams WHERE keys are equal [WITH PREFERENCE kind key]: see `HistoryJoin`'s orders."""

    def __init__(self, engine: Kept, query: Query, shape: Shape, options: Options) -> None:
        """Checked, nothing read.  Raises NotYet, ConfigError, KeyTypeError."""
        assert isinstance(shape.core, Join)
        self._join = join = shape.core
        self.kind = "" if query.preference is None else query.preference.kind
        self._streams = _two_streams(join)
        on, rest = one_key(join)
        if on is None:
            raise NotYet(
                "progress: needed a join on equal keys, which cells are found by; got none; write a.key = b.key, or "
                "read the result with batches()"
            )
        self.on = tuple(name.removeprefix(f"{s.alias}.") for name, s in zip(on, self._streams, strict=True))
        self._times = [engine.entries[stream.name].schema.field(stream.time).type for stream in self._streams]
        first, second = (
            key_family(engine.entries[s.name].schema.field(key).type, where=f"{s.alias}.{key}")
            for s, key in zip(self._streams, self.on, strict=True)
        )
        if first != second:
            raise ConfigError(
                f"progress: needed keys of one kind; got {first} and {second}, whose hashes differ; cast one side "
                "where it is registered"
            )
        if query.preference is not None and query.preference.fade != 1.0:
            raise NotYet("progress: FADE FACTOR has no operator over histories yet; leave it out, or bound the time")
        self.output = options.output or "pairs"
        self._cap = DEFAULT_CAP if options.outlier_cap is None else options.outlier_cap
        self._seed = options.seed or 0
        self._confidence = 0.95 if options.confidence is None else options.confidence
        self._check(options)
        self._residual = all_of(*equalities(join, rest), join.condition)
        indexed: dict[str, list[str]] = {}
        for stream, key in zip(self._streams, self.on, strict=True):
            indexed.setdefault(stream.name, []).append(key)
        self._histories = Histories(engine, self._streams, indexed)
        self._found = Found(shape, self._range_schema(engine) if self.output == "ranges" else None)
        self.schema = self._found.schema
        self._operator: HistoryJoin | None = None
        self._selected = False
        self._tested = 0
        self._passed = 0

    def _check(self, options: Options) -> None:
        if options.outlier_cap is not None and self.kind != "asc":
            raise ConfigError(
                f"outlier_cap: needed WITH PREFERENCE asc, which it bounds; got {self.kind or 'no preference'}; leave "
                "it out"
            )
        if self.output == "ranges":
            if self.kind in ("asc", "weighted"):
                raise ConfigError(
                    f"progress: needed output='pairs' for {self.kind}, whose outputs are single pairs; got 'ranges'; "
                    "leave output out"
                )
            if self._join.condition is not None or len(self._join.equal) > 1:
                raise NotYet(
                    "progress: needed no condition over both streams for output='ranges', whose records stand for all "
                    "matches of a key; got one; ask for pairs"
                )

    def _range_schema(self, engine: Kept) -> pa.Schema:
        kind = engine.entries[self._streams[0].name].schema.field(self.on[0]).type
        whole = pa.int64()
        return pa.schema(
            [("ordinal", whole), ("key", kind), ("zone", whole), ("first", whole), ("last", whole), ("matches", whole)]
        )

    def steps(self) -> Generator[None]:
        yield from self._histories.open()
        operator = self._make()
        self._operator = operator
        steps = operator.steps()
        for output in steps:
            if isinstance(output, Ranges):
                self._found.add(self._records(output))
            elif output is not None and len(output.left):
                self._found.add(self._rows(output))
            yield None
            if self._found.is_full:
                return

    def _make(self) -> HistoryJoin:
        sides = []
        bounds = [bounded(stream, kind) for stream, kind in zip(self._streams, self._times, strict=True)]
        probing, left = self._shared([rest for *_, rest in bounds])
        for stream, key, (since, until, _), asked in zip(self._streams, self.on, bounds, probing, strict=True):
            history = self._histories[stream.name]
            begin, end = history.between(since, until)
            selector = _selector(stream, asked)
            sides.append(HistorySide(history, key, begin, end, *selector, self._histories.grid(stream.name, key)))
        if self.kind == "asc":
            made: HistoryJoin = OutlierJoin(sides[0], sides[1], cap=self._cap)
        elif self.kind == "weighted":
            made = WeightedJoin(sides[0], sides[1], seed=self._seed)
        else:
            made = DescendingJoin(sides[0], sides[1], output=self.output)
        other = left[0 if made.swapped else 1]
        if self.output == "ranges" and other is not None:
            raise NotYet(
                "progress: needed conditions on the smaller stream alone for output='ranges', whose records stand for "
                "all matches of a key; got one on the other; ask for pairs, or bound its time"
            )
        self._residual = all_of(self._residual, other)
        self._selected = self._residual is not None or self._found.selects
        return made

    def _shared(self, rests: Sequence[Node | None]) -> tuple[list[Node | None], list[Node | None]]:
        """Of each side: what its tuples pass to probe, and what they pass once the other side has found them.

        The keys of a pair are equal, so what is asked of one key is asked of the other: whichever side probes, no pair
        is made that this refuses.  Not where equal keys may differ: -0.0 and 0.0, or keys of two types.
        """
        kinds = [self._histories[s.name].schema.field(key).type for s, key in zip(self._streams, self.on, strict=True)]
        if kinds[0] != kinds[1] or pa.types.is_floating(kinds[0]):
            return list(rests), list(rests)
        names = [f"{stream.alias}.{key}" for stream, key in zip(self._streams, self.on, strict=True)]
        keyed: list[Node | None] = []
        others: list[Node | None] = []
        for rest, name in zip(rests, names, strict=True):
            parts = conjuncts(rest)
            keyed.append(all_of(*(part for part in parts if columns_of(part) == (name,))))
            others.append(all_of(*(part for part in parts if columns_of(part) != (name,))))
        moved = [
            None if node is None else rename(node, lambda column, name=name: replace(column, name=name))  # type: ignore[misc]
            for node, name in zip(reversed(keyed), names, strict=True)
        ]
        return [all_of(*parts) for parts in zip(rests, moved, strict=True)], others

    def _rows(self, pairs: Pairs) -> pa.RecordBatch:
        parts = []
        for stream, at in zip(self._streams, (pairs.left, pairs.right), strict=True):
            names = own_columns(stream)
            parts.append(renamed(stream, self._histories[stream.name].take(at, names).columns, names))
        batch = pa.RecordBatch.from_arrays(
            [*parts[0].columns, *parts[1].columns], names=[*parts[0].schema.names, *parts[1].schema.names]
        )
        made = batch if self._residual is None else filtered(self._residual, batch)
        made = self._found.made(made)
        self._tested += batch.num_rows
        self._passed += made.num_rows
        return made

    def _records(self, found: Ranges) -> pa.RecordBatch:
        schema = self._found.schema
        key = found.key if found.key.type == schema.field("key").type else found.key.cast(schema.field("key").type)
        numbers = [pa.array(column) for column in (found.zone, found.first, found.last, found.last - found.first + 1)]
        return pa.RecordBatch.from_arrays([pa.array(found.ordinal), key, *numbers], schema=schema)

    def take(self) -> list[pa.RecordBatch]:
        return self._found.take()

    @property
    def has_news(self) -> bool:
        return self._found.has_news

    @property
    def coverage(self) -> float:
        if self._found.is_full:
            return 1.0
        return 0.0 if self._operator is None else self._operator.coverage

    @property
    def estimate(self) -> Estimate:
        operator = self._operator
        if operator is None:
            return Estimate.between(0.0, 0.0, float("inf"))
        made = operator.estimate
        if self._selected:
            made = self._of_selected(operator, made)
        return self._found.limited(made)

    def _of_selected(self, operator: HistoryJoin, pairs: Estimate) -> Estimate:
        """How many of the pairs meet the conditions that are asked of pairs."""
        tested, passed = self._tested, self._passed
        high = passed + max(0.0, float(pairs.high) - tested)
        if isinstance(operator, WeightedJoin) and operator.total is not None and 1 < tested < operator.total:
            total = operator.total
            sample = StratifiedSample(
                np.array([total]), np.array([tested]), np.zeros(passed, np.int64), np.zeros(passed, np.int64), 1
            )
            totals = sample.totals(np.ones(passed), 1.0)
            value, reach = float(totals.value[0]), float(totals.reach(self._confidence)[0])
            slack = nothing_seen(total, tested, self._confidence)
            least = max(float(passed), value - (slack if passed == tested else reach))
            most = min(high, value + (slack if passed == 0 else reach))
            return Estimate(min(max(value, least), most), least, most, self._confidence, bool(totals.certified[0]))
        share = passed / tested if tested else 1.0
        value = passed + max(0.0, float(pairs.value) - tested) * share
        return Estimate(min(value, high), float(passed), high, 1.0, True)

    def explain(self) -> list[str]:
        a, b = (f"{s.name} as {s.alias}" if s.name != s.alias else s.name for s in self._streams)
        first = {
            "": "most matches first",
            "desc": "most matches first",
            "asc": f"keys of at most {self._cap} tuples in both streams, rarest first",
            "weighted": "pairs in a random order",
        }[self.kind]
        lines = [f"progressive join of the histories of {a} and {b} on {' = '.join(self.on)}: {first}; {self.output}"]
        for stream, kind in zip(self._streams, self._times, strict=True):
            since, until, _ = bounded(stream, kind)
            if since is not None or until is not None:
                lines.append(f"  {stream.alias}: {_told(since, until)} is a range of ordinals")
        made = sorted(self._histories.made)
        if made:
            lines.append(f"  not kept by the database, read for this query: {', '.join(made)}")
        if self._operator is not None:
            lines += grids_text(self._histories, self._operator.figures, "keys of the probing side")
            lines += _figures(self._operator, self._streams)
        return lines


def _figures(operator: HistoryJoin, streams: tuple[Stream, Stream]) -> list[str]:
    figures = operator.figures
    probing = streams[1 if operator.swapped else 0]
    told = ", ".join(f"{tier} {count:,}" for tier, count in sorted(figures.bytes.items())) or "none"
    return [
        f"  {probing.alias} probes: {operator.probe.tuples:,} of its tuples",
        f"  actual: cells read {figures.cells:,}, cells ruled out {figures.ruled_out:,}, keys looked up "
        f"{figures.looked_up:,} ({figures.listed:,} of them in lists of heavy keys), tuples looked at "
        f"{figures.tuples:,}, outputs {figures.outputs:,}",
        f"  bytes read by tier: {told}",
        f"  coverage {operator.coverage:.6g}",
    ]


def _told(since: int | None, until: int | None) -> str:
    parts = [] if since is None else [f"ts >= {since} ns"]
    return " and ".join(parts + ([] if until is None else [f"ts <= {until} ns"]))


def _two_streams(join: Join) -> tuple[Stream, Stream]:
    streams = []
    for given in join.inputs:
        each, where = given, []
        while isinstance(each, Filter):
            where.append(each.condition)
            each = each.input
        if not isinstance(each, Stream):
            raise NotYet(
                f"progress: needed streams as inputs of a join; got a {type(each).__name__.lower()}, which has no "
                "history; read the result with batches()"
            )
        if where:
            fields = (each.name, each.alias, each.position, each.fields, each.time, each.window)
            each = Stream(*fields, all_of(each.where, *where))
        check_stream(each)
        streams.append(each)
    return streams[0], streams[1]


def _selector(stream: Stream, rest: Node | None) -> tuple[tuple[str, ...], Callable[[Any], Any] | None]:
    """(columns, mask) of the conditions on a stream that are no bound in time."""
    if rest is None:
        return (), None
    prefix = f"{stream.alias}."
    names = tuple(name.removeprefix(prefix) for name in columns_of(rest))

    def select(batch: pa.RecordBatch) -> pa.BooleanArray:
        return evaluate_mask(rest, renamed(stream, batch.columns, batch.schema.names))

    return names, select
