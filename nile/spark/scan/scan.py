"""`db.sql(..., engine="spark")`: streams of a lake, scanned by the tasks of Spark, the most promising partitions first.

The driver ranks partitions by what sketches promise (`scan_ranking`), tasks join them in waves (`scan_task`), and after
each wave the answer has grown: what is read is always a prefix of the ranking.  Source: promising tuples, section 2:
identify, prioritise, execute; here over files, with bytes as the cost.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from nile.answers.progress import Progressive, Run
from nile.answers.result import Result
from nile.base.explained import Explained
from nile.execution.options import Options
from nile.execution.progress.output import Found
from nile.execution.statement.explain import preference_text
from nile.execution.values import schema_of
from nile.expressions.tree import Column
from nile.operators.inputs.shared_grid import SharedSummary
from nile.preferences.budget import BudgetReport
from nile.spark.scan.grids import grids_of, promise_of
from nile.spark.scan.groups import Totals
from nile.spark.scan.partitions import LakeSide, partitions_of
from nile.spark.scan.query import Database, ScanQuery, scan_query
from nile.spark.scan.ranking import Ranking, ranked
from nile.spark.scan.run import Waves
from nile.spark.scan.sketches import sketches_of
from nile.spark.session import spark_session
from nile.sql.plan import Filter, Project, Query
from nile.streams.accounting import Accounting
from nile.summaries.estimate import Estimate
from nile.summaries.heavy import pa

__all__ = ["ScanResult", "ScanRun", "scanned"]

_WEIGHT = "_weight"
_LEAST = 12
"""Partitions whose scatter says something of that of all."""


def scanned(database: Database, query: Query, options: Options) -> ScanResult:
    """A statement as a scan of the lake; nothing is read yet.  Raises NotYet, ConfigError, BudgetError."""
    asked = scan_query(database, query, options)
    grids = grids_of(database, asked)
    fields = list(schema_of(query.plan.fields))
    weighted = asked.kind == "weighted" and asked.group is None
    schema = pa.schema([*fields, *([pa.field(_WEIGHT, pa.float64())] if weighted else [])])

    def explained(run: Any) -> Explained:
        lines = [] if query.preference is None else [preference_text(query.preference)]
        return Explained([*lines, *(run or ScanRun(asked, schema, grids)).explain()])

    return ScanResult(
        lambda: ScanRun(asked, schema, grids),
        schema,
        query=query,
        emit="append",
        explained=explained,
        progressing=lambda: ScanRun(asked, pa.schema(fields), grids),
    )


class ScanResult(Result):
    """A result that Spark finds.  `explain` ranks the partitions (it makes sketches that are missing), reads none."""

    def _growing(self, analyze: bool) -> list[str]:
        del analyze
        return []  # `progress` and `to_arrow` go the same way, which `explain` has told


class ScanRun(Run, Progressive):
    """One run: of `to_arrow` and `batches`, or of `progress`, where rows come after every wave.

    answer: itself.  ranking: made when it is first asked for.
    """

    def __init__(self, query: ScanQuery, schema: pa.Schema, grids: tuple[SharedSummary, ...] | None = None) -> None:
        self.query = query
        self._called = time.monotonic()
        self._grids = grids
        self.schema = schema
        self.replaces = query.group is not None
        self.answer = self
        self._found = Found(query.task.shape, schema if query.group is None else None)
        self._partials: list[tuple[int, pa.RecordBatch]] = []
        self._ranking: Ranking | None = None
        self._sketched = 0
        self._waves: Waves | None = None

    @property
    def ranking(self) -> Ranking:
        """The partitions in order."""
        if self._ranking is None:
            query, fewest = self.query, self.query.kind == "asc" and len(self.query.task.sides) == 1
            self._ranking = ranked(self._partitions(), query.kind, query.fade, query.seed, fewest=fewest)
        return self._ranking

    def _partitions(self) -> Any:
        spark, task = spark_session(), self.query.task
        sides = []
        for side, stream in zip(task.sides, self.query.streams, strict=True):
            parts = tuple(stream.select(side.since, side.until))
            sketches = sketches_of(stream, parts, spark)
            self._sketched += sum(each.nbytes for each in sketches.values())
            sides.append(LakeSide(stream, parts, sketches, side.columns, side.since, side.until))
        promise = None
        if self._grids is not None:
            promise = promise_of(self._grids, self.query)
            for grid in self._grids:
                grid.served += 1
        return partitions_of(tuple(sides), task.window, cap=task.cap, asked=self.query.asked, promise=promise)

    def steps(self) -> Generator[None]:
        """The waves; each is the work of some tasks."""
        query = self.query
        waves = Waves(spark_session(), self.ranking, query.task, query.budget, query.most, self._called)
        self._waves = waves
        for look, rows in enumerate(waves.run(), 1):
            for place, batch in rows:
                if query.group is None:
                    self._found.add(batch)
                else:
                    self._partials.append((place, batch))
            yield None
            if self._found.is_full or self._is_close(waves, look):
                return

    def _is_close(self, waves: Waves, look: int) -> bool:
        """Whether the error that was asked for is met, as look number `look` at a growing sample tells."""
        target = self.query.target
        if target is None or waves.whole or waves.read < _LEAST:
            return False
        told = self._intervals(target.look(look))
        # What shows no scatter has no interval yet.
        return bool(told) and all(each.high > each.low and each.relative_error <= target.error for each in told)

    def _intervals(self, confidence: float) -> list[Estimate]:
        """Of every number of the answer."""
        if self.query.task.counts:
            waves = self._waves
            assert waves is not None
            return [self.ranking.total(np.array(waves.outputs, np.float64), waves.read, confidence)]
        return [each for column in self._totals.estimates(confidence).values() for each in column]

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows; under weighted they come together at the end, when their weights are known."""
        if self.query.group is not None:
            for _ in self.steps():
                pass
            yield from self.take()
        elif self.query.kind == "weighted":
            yield from self._weighted()
        else:
            for _ in self.steps():
                yield from self._found.take()

    def _weighted(self) -> Iterator[pa.RecordBatch]:
        waves = Waves(spark_session(), self.ranking, self.query.task, self.query.budget, None, self._called)
        self._waves = waves
        held = [each for rows in waves.run() for each in rows]
        weight = self.ranking.weights(waves.read)
        for place, batch in held:
            made = pa.array(np.full(batch.num_rows, weight[place]))
            yield pa.RecordBatch.from_arrays([*batch.columns, made], schema=self.schema)

    def take(self) -> list[pa.RecordBatch]:
        """New rows; of aggregates the one row as it is now."""
        if self.query.group is None:
            return self._found.take()
        return [self._found.made(self._counted_row() if self.query.task.counts else self._totals.row_batch())]

    @property
    def _totals(self) -> Totals:
        assert self.query.group is not None
        read = 0 if self._waves is None else self._waves.read
        return Totals(self.query.group, self._partials, self.ranking.weights(read))

    def _counted_row(self) -> pa.RecordBatch:
        """count(*), where tasks did nothing but count."""
        assert self.query.group is not None
        told = self._counted
        count = round(float(told.value)) if self.query.kind == "weighted" else int(float(told.low))
        fields = schema_of(self.query.group.fields)
        return pa.RecordBatch.from_arrays([pa.array([count], kind) for kind in fields.types], schema=fields)

    @property
    def has_news(self) -> bool:
        """Whether `take` would give rows."""
        return self.query.group is not None or self._found.has_news

    @property
    def whole(self) -> bool:
        """Whether this is the full answer: all partitions are read, or the LIMIT is reached."""
        return self._found.is_full or (self._waves is not None and self._waves.whole)

    @property
    def coverage(self) -> float:
        """The share of the expected outputs that the partitions read hold; 1 when all are read."""
        if self._found.is_full:
            return 1.0
        return 0.0 if self._waves is None else self.ranking.covered(self._waves.read)

    @property
    def _counted(self) -> Estimate:
        waves = self._waves
        if waves is None:
            return Estimate.between(0.0, 0.0, float("inf"))
        return self.ranking.total(np.array(waves.outputs, np.float64), waves.read, self.query.confidence)

    @property
    def estimate(self) -> Estimate:
        """How many outputs the full answer has (of aggregates: go into it).

        Under asc and desc low and high are certain, and the value is an expectation between them.
        """
        return self._found.limited(self._counted) if self.query.group is None else self._counted

    @property
    def estimates(self) -> Mapping[str, Sequence[Estimate]]:
        """Of aggregates that stand for themselves, by column, one per group; none after a HAVING."""
        group, above = self.query.group, self.query.task.shape.above
        if group is None or any(isinstance(step, Filter) for step in above):
            return {}
        if self.query.task.counts:
            made = {each.name: [self._counted] for each in group.aggregates}
        else:
            made = self._totals.estimates(self.query.confidence)
        for step in above[::-1]:
            assert isinstance(step, Project)
            plain = {item.name: item.node.name for item in step.items if isinstance(item.node, Column)}
            made = {name: made[own] for name, own in plain.items() if own in made}
        return made

    @property
    def accounting(self) -> dict[str, Accounting]:
        """Of each alias: shed are the tuples of partitions that were not read."""
        told = {}
        for at, (side, stream) in enumerate(zip(self.query.task.sides, self.query.streams, strict=True)):
            waves, account = self._waves, Accounting()
            account.apply(stream.tuples)
            if waves is None or not waves.whole:  # what is ruled out, or not asked for, is answered without reading
                account.shed_applied(stream.tuples - (0 if waves is None else waves.tuples[at]))
            told[side.stream.alias] = account
        return told

    @property
    def memory(self) -> int:
        """Bytes of sketches that the driver held."""
        return self._sketched

    @property
    def budget(self) -> BudgetReport:
        """Asked and spent; fraction: of the bytes of all partitions."""
        asked, waves = self.query.budget, self._waves
        total = self.ranking.bytes
        share = 0.0 if waves is None else (waves.bytes / total if total else 1.0)
        if asked is None or asked.unit == "fraction":
            return BudgetReport(1.0 if asked is None else asked.amount, share, "fraction", share)
        spent = float(0 if waves is None else waves.found) if asked.unit == "outputs" else self._elapsed
        return BudgetReport(asked.amount, spent, asked.unit, share, asked.is_reproducible)

    @property
    def _elapsed(self) -> float:
        return 0.0 if self._waves is None else self._waves.elapsed

    def worth(self) -> str:
        """What the answer is worth, in a few words."""
        made = self.estimate
        told = f"read {self.budget.fraction:.3g} of the bytes, coverage {self.coverage:.3g}"
        if made.low == made.high:
            return told
        return f"{told}, estimate {float(made.value):,.6g}, from {float(made.low):,.6g} to {float(made.high):,.6g}"

    def explain(self) -> list[str]:
        """How it runs, what the ranking is expected to gain, and what was done so far."""
        query, ranking = self.query, self.ranking
        named = " and ".join(f"{s.stream.name} as {s.stream.alias}" for s in query.task.sides)
        what = f"{'join' if len(query.task.sides) == 2 else 'selection'} of {named}"
        first = {
            "weighted": "partitions drawn at random by their expected outputs",
            "asc": f"partitions with the most expected outputs of keys of at most {query.task.cap} tuples a byte first"
            if len(query.task.sides) == 2
            else "partitions with the fewest expected outputs first",
        }.get(query.kind, "partitions with the most expected outputs a byte first")
        lines = [f"scan of the lake by Spark: {what}: {first}", *ranking.explain()]
        if self._grids is not None:
            lines.append(f"  outputs expected by the grids of summaries {', '.join(one.name for one in self._grids)}")
        if query.budget is not None:
            lines.append(f"  budget: {query.budget}")
        if query.target is not None:
            lines.append(
                f"  until every number is within {query.target.error:.3g} of it at confidence "
                f"{query.target.confidence:g}, looked at after each wave"
            )
        waves = self._waves
        if waves is not None:
            lines.append(
                f"  actual: partitions read {waves.read:,}, bytes {waves.bytes:,}, outputs {waves.found:,}; "
                f"coverage {self.coverage:.6g}"
            )
        return lines
