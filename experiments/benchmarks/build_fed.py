"""The opponent of a build: the same kernels, fed with rows that Spark reads, puts in order and hands over as Arrow."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from nile.pyramid.history.history import plain_batch
from nile.pyramid.lake.lake import ORDINAL, TS
from nile.spark.building.build import done_of
from nile.spark.building.reading import Rows, Taking
from nile.spark.building.tasks import DONE, Done, Job, Work
from nile.spark.slices import cut_sql
from nile.summaries.heavy import pa, pyspark
from nile.summaries.heavy import spark_functions as functions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["fed"]


@dataclass(frozen=True, slots=True)
class _Fed(Job):
    """A job whose tuples come from Spark: _ordinal, _ts and columns."""

    batches: Any = None

    def in_order(self, _: Work, names: Sequence[str]) -> Taking:
        return Taking(self._pieces(pa.schema([self.schema.field(name) for name in names])))

    def _pieces(self, schema: pa.Schema) -> Iterator[Rows]:
        for batch in self.batches:
            rows = pa.RecordBatch.from_arrays(batch.columns[2:], names=schema.names)
            yield batch.column(1).to_numpy().copy(), plain_batch(rows, schema)

    def in_disorder(self, _: Work) -> Iterator[tuple[np.ndarray[Any, Any], pa.Array]]:
        for batch in self.batches:
            yield batch.column(0).to_numpy(), batch.column(2)


@dataclass(frozen=True, slots=True)
class _Task:
    """For `mapInArrow`: partition i does works[i], or the only one; every, whatever partitions there are."""

    job: Job
    works: tuple[Work, ...]

    def map(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        number = pyspark.TaskContext.get().partitionId() if len(self.works) > 1 else 0
        shared = _Fed(self.job.lake, self.job.store, self.job.epoch, self.job.schema, batches)
        done = json.dumps([asdict(one) for one in shared.do(self.works[number])])
        yield pa.record_batch({"number": pa.array([number], pa.int32()), "done": [done]})


def fed(spark: SparkSession) -> Any:
    """A runner of works for `nile.spark.building.build.build_with`."""

    def run(_: str, job: Job, works: Sequence[Work]) -> list[list[Done]]:
        found: dict[int, list[Done]] = {number: [] for number in range(len(works))}
        groups: dict[tuple[str, str], list[int]] = {}
        for number, work in enumerate(works):
            groups.setdefault((work.kind, work.column), []).append(number)
        for (kind, column), numbers in groups.items():
            numbers.sort(key=lambda number: works[number].runs[0].begin if works[number].runs else 0)
            files = sorted({f"{job.lake}/{part.name}" for number in numbers for part in works[number].parts})
            frame = spark.read.parquet(*files).select(ORDINAL, TS, *([column] if column else job.schema.names))
            # The parts are described to nobody: Spark reads them.
            told = tuple(replace(works[number], parts=()) for number in numbers)
            if kind == "counts":
                told = told[:1]
            else:
                cuts = [work.runs[0].begin for work in told[1:]]
                frame = frame.repartitionById(len(told), functions.expr(cut_sql(cuts, ORDINAL)))
                frame = frame.sortWithinPartitions(ORDINAL)
            for row in frame.mapInArrow(_Task(job, told).map, DONE).collect():
                found[numbers[row["number"]]] += done_of(row["done"])
        return [found[number] for number in range(len(works))]

    return run
