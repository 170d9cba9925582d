"""A lake's stream as a source of a database, and as files for the exact jobs, which may not know the lake."""

from __future__ import annotations

from pathlib import Path

from nile.pyramid.lake.lake import ORDINAL, TS, LakeStream
from nile.spark.exact.input import TupleFiles
from nile.streams.lake import LakeSource
from nile.summaries.errors import SourceError, UnknownColumn

__all__ = ["lake", "tuple_files"]


def lake(root: str | Path, stream: str) -> LakeSource:
    """A stream of a lake, to be registered: `db.register("shop", nile.spark.lake("lake/", "shop"))`.

    It is the stream as it is now.  Raises SourceMissing, StoreCorrupt, EnvelopeError.
    """
    return LakeSource(LakeStream.open(root, stream))


def tuple_files(lake: str | Path, stream: str, *, key: str | None = None, check: bool = True) -> TupleFiles:
    """The files of a stream.  key: the column to join by (default: the one it is clustered by).

    check: compares every file's length and footer with the manifest first, so that a part that changed is
    named before Spark reads it.  Raises SourceMissing, SourceError (no tuples yet), UnknownColumn, StoreCorrupt.
    """
    opened = LakeStream.open(lake, stream)
    if not opened.parts:
        raise SourceError(f"{lake}: needed a stream with tuples; '{stream}' has no tuples yet; `nile ingest` adds some")
    column = opened.layout.key if key is None else key
    if column not in opened.layout.schema.names:
        known = ", ".join(opened.layout.schema.names)
        raise UnknownColumn(f"{lake}: stream '{stream}' has no column '{column}'; it has {known}")
    if check:
        for part in opened.parts:
            opened.file(part)
    return TupleFiles(stream, tuple(opened.path / part.name for part in opened.parts), column, ORDINAL, TS)
