"""Selections over one stream, as growing answers."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

import numpy as np

from nile.answers.progress import Progressive
from nile.execution.approximate.shape import Shape
from nile.execution.options import Options
from nile.execution.progress.input import (
    Histories,
    Kept,
    bounded,
    check_stream,
    keys_of,
    own_columns,
    renamed,
    values_of,
)
from nile.execution.progress.output import Found
from nile.execution.values import filtered
from nile.expressions.tree import conjuncts
from nile.operators.history.lookup import HistoryFigures
from nile.operators.history.scan import KeyScan, Scan, Stretch, blocks, rows_at_random
from nile.sql.plan import Filter, Query, Stream
from nile.summaries.errors import NotYet
from nile.summaries.estimate import Estimate
from nile.summaries.heavy import pa
from nile.summaries.intervals import StratifiedSample, nothing_seen

if TYPE_CHECKING:
    from nile.pyramid.history.history import History

__all__ = ["ProgressiveRows", "figures_text"]


class ProgressiveRows(Progressive):
    """SELECT columns FROM stream WHERE condition [WITH PREFERENCE kind column].

    By the cells of an indexed column where the condition asks for some of its values, else block by block (the latest
    first, what a summary rules out left out), under `weighted` tuple by tuple in a random order.
    """

    def __init__(self, engine: Kept, query: Query, shape: Shape, options: Options) -> None:
        """Checked, nothing read.  Raises NotYet, ConfigError."""
        assert isinstance(shape.core, Stream)
        check_stream(shape.core)
        self._stream = shape.core
        self.kind = "" if query.preference is None else query.preference.kind
        if query.preference is not None and query.preference.fade != 1.0:
            raise NotYet("progress: FADE FACTOR has no operator over histories yet; leave it out, or bound the time")
        self._seed = options.seed or 0
        self._confidence = 0.95 if options.confidence is None else options.confidence
        self._time = engine.entries[self._stream.name].schema.field(self._stream.time).type
        self._histories = Histories(engine, (self._stream,), {})
        self._found = Found(shape)
        self.schema = self._found.schema
        condition = list(conjuncts(self._stream.where))
        for step in shape.above[::-1]:
            if not isinstance(step, Filter):
                break
            condition += conjuncts(step.condition)
        self._condition = condition
        self.figures = HistoryFigures()
        self._way = ""
        self._covered = 0.0
        self._asked = -1
        self._tested = 0
        self._passed = 0

    def steps(self) -> Generator[None]:
        yield from self._histories.open()
        history = self._histories[self._stream.name]
        since, until, rest = bounded(self._stream, self._time)
        begin, end = history.between(since, until)
        self._asked = end - begin
        for stretch in self._scan(history, begin, end):
            if stretch is not None:
                self._tested += stretch.passed
                for batch in self._read(history, stretch):
                    self._tested += batch.num_rows
                    made = self._found.made(batch if rest is None else filtered(rest, batch))
                    self._passed += made.num_rows
                    self._found.add(made)
                self._covered = stretch.coverage
            yield None
            if self._found.is_full:
                return
        self._covered = 1.0

    def _scan(self, history: History, begin: int, end: int) -> Scan:
        runs = self._histories.without(self._stream, self._condition)
        if self.kind == "weighted":
            self._way = "tuple by tuple in a random order"
            return rows_at_random(begin, end, self.figures, self._seed, runs)
        for part in self._condition:
            asked = values_of(part, self._stream.alias)
            if asked is not None and asked[0] in history.indexed:
                column, values = asked
                keys = keys_of(history, column, values)
                if keys is None:
                    continue  # values that the column cannot have; the blocks will show it
                self._way = f"by the cells of {column}, {'fewest' if self.kind == 'asc' else 'most'} matches first"
                return KeyScan(
                    history, column, keys, begin, end, self.figures, descending=self.kind != "asc", runs=runs
                ).steps()  # fmt: skip
        self._way = "block by block, the latest first"
        return blocks(begin, end, self.figures, runs)

    def _read(self, history: History, stretch: Stretch) -> Iterator[pa.RecordBatch]:
        names = own_columns(self._stream)
        if stretch.ordinals is not None:
            yield renamed(self._stream, history.take(stretch.ordinals, names).columns, names)
            return
        for _, batch in history.batches(names, stretch.begin, stretch.end):
            yield renamed(self._stream, batch.columns, names)

    def take(self) -> list[pa.RecordBatch]:
        return self._found.take()

    @property
    def has_news(self) -> bool:
        return self._found.has_news

    @property
    def coverage(self) -> float:
        return 1.0 if self._found.is_full else self._covered

    @property
    def estimate(self) -> Estimate:
        tested, passed = self._tested, self._passed
        if self._asked < 0:
            return Estimate.between(0.0, 0.0, float("inf"))
        if self._covered >= 1.0:
            return self._found.limited(Estimate.exact(float(passed)))
        most = float(passed + self._asked - tested)
        if self.kind == "weighted" and 1 < tested < self._asked:
            none = np.zeros(passed, np.int64)
            sample = StratifiedSample(np.array([self._asked]), np.array([tested]), none, none, 1)
            totals = sample.totals(np.ones(passed), 1.0)
            value, reach = float(totals.value[0]), float(totals.reach(self._confidence)[0])
            slack = nothing_seen(self._asked, tested, self._confidence)
            low = max(float(passed), value - (slack if passed == tested else reach))
            high = min(most, value + (slack if passed == 0 else reach))
            made = Estimate(min(max(value, low), high), low, high, self._confidence, bool(totals.certified[0]))
        else:
            value = min(most, passed / self._covered if self._covered else float(passed))
            made = Estimate(value, float(passed), most, 1.0, True)
        return self._found.limited(made)

    def explain(self) -> list[str]:
        return [
            f"progressive selection over the history of {self._stream.name}: {self._way or 'by cells or blocks'}",
            *grids_text(self._histories, self.figures),
            *(figures_text(self.figures, self.coverage) if self._asked >= 0 else []),
        ]


def grids_text(histories: Histories, figures: HistoryFigures, what: str = "tuples") -> list[str]:
    """Which summaries were asked, and what they spared, as a line of EXPLAIN."""
    names = sorted(set(histories.grids.values()))
    return [f"  summary {', '.join(names)} rules out {figures.passed:,} {what}"] if names else []


def figures_text(figures: HistoryFigures, coverage: float) -> list[str]:
    """What an operator has done, as lines of EXPLAIN ANALYZE."""
    told = ", ".join(f"{tier} {count:,}" for tier, count in sorted(figures.bytes.items())) or "none"
    return [
        f"  actual: cells read {figures.cells:,}, cells ruled out {figures.ruled_out:,}, keys looked up "
        f"{figures.looked_up:,}, tuples looked at {figures.tuples:,}, outputs {figures.outputs:,}",
        f"  bytes of cells read by tier: {told}",
        f"  coverage {coverage:.6g}",
    ]
