"""`db.sql(..., engine="spark")`: over streaming DataFrames the standing query of `stream_query`, over a lake a scan."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nile.answers.progress import Run
from nile.answers.result import Result
from nile.base.durations import format_duration, parse_duration
from nile.base.explained import Explained
from nile.execution.options import Options
from nile.execution.statement.explain import preference_text
from nile.preferences.budget import BudgetReport
from nile.spark.failure import spark_failures
from nile.spark.scan.query import Database
from nile.spark.scan.scan import scanned
from nile.spark.session import query_settings
from nile.spark.standing.partition import Asked, Partition, Worth
from nile.spark.standing.query import StreamSource, asked_for, frame_of, stream_worth, told_schema
from nile.sql.plan import Query, Stream, leaves_of
from nile.sql.text import query_text
from nile.streams.accounting import Accounting
from nile.streams.frames import StreamingFrame
from nile.summaries.errors import ConfigError
from nile.summaries.estimate import Estimate
from nile.summaries.heavy import pa

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

__all__ = ["StandingResult", "on_spark"]

_OWN = ("checkpoint", "into", "every", "parts")
_WHERE = "standing query on Spark"


def on_spark(database: Database, query: Query, options: Options, keep: Callable[[StandingResult], None]) -> Result:
    """A statement on Spark: over streaming DataFrames a StandingResult, else a scan of the lake.  Nothing is read yet.

    keep: called with it when it starts.  Raises NotYet, ConfigError, BudgetError.
    """
    sources: dict[str, StreamSource] = {}
    others = []
    for leaf in leaves_of(query.plan):
        held = database.stream(leaf.name) if isinstance(leaf, Stream) else None
        if held is None or not isinstance(held.source, StreamingFrame):
            others.append(leaf.name)
            continue
        assert held.time is not None
        late = {"lateness": held.lateness / 10**9} if held.lateness is not None else {}
        where = None if held.where is None else held.where.text
        sources[leaf.name] = StreamSource(held.source.frame, held.time, where=where, **late)
    if not sources:
        return scanned(database, query, options)
    if others:
        raise ConfigError(
            f"{_WHERE}: needed streaming DataFrames alone; got '{others[0]}' beside '{next(iter(sources))}'; join what "
            "is whole to the DataFrame before it is registered"
        )
    given = {name: value for name, value in options.said() if name not in ("engine", *_OWN)}
    if options.budget is not None:
        given["budget"] = options.budget
    own = dict(options.using)
    asked, probe = asked_for(query_text(query), sources, own.get("parts"), given)
    return StandingResult(query, asked, probe, sources, own, keep)


@dataclass(frozen=True, slots=True)
class _Goes:
    """How it runs: where it keeps how far it came, who gets its rows, ns between micro-batches."""

    checkpoint: str
    into: str | Callable[[Any, int], None]
    every: int | None

    @classmethod
    def read(cls, own: Mapping[str, Any]) -> _Goes:
        """Raises ConfigError."""
        checkpoint, into, every = (own.get(name) for name in _OWN[:3])
        if not isinstance(checkpoint, str | Path):
            raise ConfigError(
                f"{_WHERE}, checkpoint: needed a directory, where Spark keeps state and how far the query came; got "
                f"{_named(checkpoint)}; say checkpoint='progress/'"
            )
        if not isinstance(into, str | Path) and not callable(into):
            raise ConfigError(
                f"{_WHERE}, into: needed a directory for Parquet files, or a function of the rows of a micro-batch (a "
                f"DataFrame) and its number; got {_named(into)}; say into='pairs/'; "
                "nile.spark.stream_query gives the streaming DataFrame itself, for any sink"
            )
        pause = None if every is None else parse_duration(every, where=f"{_WHERE}, every")
        return cls(os.fspath(checkpoint), os.fspath(into) if isinstance(into, Path) else into, pause)

    def start(self, told: Any) -> StreamingQuery:
        """Run it over a streaming DataFrame."""
        writer = told.writeStream.option("checkpointLocation", self.checkpoint)
        if self.every is not None:
            writer = writer.trigger(processingTime=f"{self.every // 1000} microseconds")
        if isinstance(self.into, str):
            return writer.format("parquet").option("path", self.into).start()
        return writer.foreachBatch(self.into).start()

    def __str__(self) -> str:
        rows = self.into if isinstance(self.into, str) else getattr(self.into, "__name__", type(self.into).__name__)
        pause = "" if self.every is None else f", a micro-batch every {format_duration(self.every)}"
        return f"rows go to {rows}, progress to {self.checkpoint}{pause}"


class StandingResult(Result):
    """A standing query that Spark runs, from when its SELECT is asked until `stop` or the end of its database.

    Its rows go where `into` says, with every micro-batch, so nothing that reads rows has any.  `estimate`, `accounting`
    and `budget` are those of the last micro-batch, `worth_now` all of them.  Asked again with the same statement,
    `parts` and `checkpoint` it goes on where it was stopped or killed.
    streaming: Spark's own handle, for its progress; None before it is started.
    """

    def __init__(
        self,
        query: Query,
        asked: Asked,
        probe: Partition,
        sources: Mapping[str, StreamSource],
        own: Mapping[str, Any],
        keep: Callable[[StandingResult], None],
    ) -> None:
        self._keep = keep
        self._asked, self._probe, self._sources, self._own = asked, probe, sources, own
        self.streaming: StreamingQuery | None = None
        schema = told_schema(probe.schema)
        super().__init__(lambda: _Elsewhere(schema, self), schema, query=query, emit="append", explained=self._told)

    @property
    def asked_share(self) -> float:
        """The budget, a fraction of the exact answer's cost; 1 of an exact query."""
        given = self._asked.options.get("budget")
        said = None if self.query is None or self.query.budget is None else self.query.budget[1]
        return float(given.amount if given is not None else 1.0 if said is None else said)

    def stand(self) -> None:
        """Start it.  Raises ConfigError without `checkpoint` and `into`, and SparkFailed."""
        goes = _Goes.read(self._own)
        told = frame_of(self._asked, self._probe, self._sources)
        with spark_failures(_WHERE), query_settings(next(iter(self._sources.values())).frame.sparkSession):
            self.streaming = goes.start(told)
        self._keep(self)

    def stop(self) -> None:
        """End it, amid a micro-batch too, which is done again by who goes on.  Raises SparkFailed."""
        if self.streaming is not None:
            with spark_failures(_WHERE):
                self.streaming.stop()

    def wait(self, every_row: bool = False) -> None:
        """Until it has ended; every_row: or has told all of what its sources have now.

        Raises SparkFailed, and the error of Nile's that ended it.
        """
        if self.streaming is None:
            raise ConfigError(f"{_WHERE}: needed one that was started; got an EXPLAIN; ask the SELECT")
        with spark_failures(_WHERE):
            if every_row:
                self.streaming.processAllAvailable()
            else:
                self.streaming.awaitTermination()

    @property
    def worth_now(self) -> Worth:
        """How good the answer is as of the last micro-batch.  Raises SparkFailed before the first."""
        return stream_worth(_Goes.read(self._own).checkpoint)

    def _told(self, run: Run | None) -> Explained:
        del run
        parts = self._asked.parts
        by = ", ".join(f"{each.name}.{each.key}" for each in self._asked.streams)
        own = [name for name in _OWN[:2] if name not in self._own]
        goes = f"needs {' and '.join(own)} to be started" if own else str(_Goes.read(self._own))
        preference = [] if self.query is None or self.query.preference is None else [self.query.preference]
        lines = [f"{_WHERE}: {parts} part{'s'[: parts != 1]} by the hash of {by}", f"  {goes}"]
        return Explained([*map(preference_text, preference), *lines])

    def _growing(self, analyze: bool) -> list[str]:
        del analyze
        return []

    def _begin_if_approximate(self) -> None:
        """It has no operator here."""

    def _finished(self) -> Run:
        return _Elsewhere(self.schema, self)

    def _state(self) -> str:
        if self.streaming is None:
            return "not started"
        return f"{'standing on' if self.streaming.isActive else 'ended in'} Spark, {_Goes.read(self._own)}"


class _Elsewhere(Run):
    """The run of a standing query: its figures are in its checkpoint, its rows where they were sent."""

    def __init__(self, schema: pa.Schema, result: StandingResult) -> None:
        self.schema = schema
        self._result = result

    def batches(self) -> Iterator[pa.RecordBatch]:
        raise ConfigError(
            f"{_WHERE}: needed a question about the query itself (estimate, accounting, worth_now, streaming); got one "
            f"for rows: {self._result._state()}; read them there"
        )

    @property
    def estimate(self) -> Estimate:
        return self._result.worth_now.estimate

    @property
    def accounting(self) -> dict[str, Accounting]:
        return dict(self._result.worth_now.accounting)

    @property
    def budget(self) -> BudgetReport:
        now = self._result.worth_now
        return BudgetReport(self._result.asked_share, now.fraction, "fraction", now.fraction)


def _named(value: object) -> str:
    return "none" if value is None else f"a {type(value).__name__}"
