"""The sketches that a scan ranks by: those kept beside the files of the lake, and the missing ones made by tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nile.pyramid.lake.lake import LakeStream
from nile.pyramid.lake.part import Part
from nile.pyramid.lake.sketch import PartSketch, keep_sketch, kept_sketch, sketch_part
from nile.spark.failure import spark_failures
from nile.summaries.heavy import pa

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["sketches_of"]

_AT_ONCE = 64  # files of one job: bounds what comes back to the driver at a time
_ROWS = "place bigint, sketch binary"


@dataclass(frozen=True, slots=True)
class _SketchJob:
    """Files of a stream that need a sketch."""

    stream: LakeStream
    parts: tuple[Part, ...]

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For `mapInArrow` over places in `parts`: _ROWS out."""
        key = self.stream.layout.key
        for batch in batches:
            for place in batch.column(0).to_pylist():
                part = self.parts[place]
                packed = sketch_part(self.stream.file(part), key).packed(part, key)
                yield pa.record_batch({"place": [place], "sketch": pa.array([packed], pa.binary())})


def sketches_of(stream: LakeStream, parts: Sequence[Part], spark: SparkSession) -> dict[str, PartSketch]:
    """The sketch of every file, by the file's name; those that nobody has made yet are made and kept.

    Cost: of one that is there, a read of 50 to 790 KB.  Raises SparkFailed, StoreCorrupt.
    """
    found: dict[str, PartSketch] = {}
    missing: list[Part] = []
    for part in parts:
        sketch = kept_sketch(stream, part)
        if sketch is None:
            missing.append(part)
        else:
            found[part.name] = sketch
    bare = LakeStream(stream.path, stream.layout)
    for at in range(0, len(missing), _AT_ONCE):
        some = tuple(missing[at : at + _AT_ONCE])
        with spark_failures(f"stream '{stream.layout.stream}': sketches of its files"):
            made = spark.range(0, len(some), 1, len(some)).mapInArrow(_SketchJob(bare, some).run, _ROWS).toArrow()
        for place, packed in zip(made.column("place").to_pylist(), made.column("sketch").to_pylist(), strict=True):
            part = some[place]
            sketch = PartSketch.unpacked(packed, part, stream.layout.key, where=f"the sketch of {part.name}")
            keep_sketch(stream, part, sketch)
            found[part.name] = sketch
    return found
