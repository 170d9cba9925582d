"""Frames that have not been computed yet: Polars LazyFrames, pyarrow datasets, Spark DataFrames.

Opening one asks for its columns only; each reading computes it anew, with only the columns that are needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from nile.base.raw import RawBatch, check_columns
from nile.streams.arrow import ArrowSource, IterableSource
from nile.summaries.errors import SourceError
from nile.summaries.heavy import pa

__all__ = ["FrameSource", "frame_of"]


class Frame(Protocol):
    """What is asked of a frame."""

    def empty(self) -> Any:
        """Its columns without rows, as something of Arrow's."""

    def read(self, columns: Sequence[str], rows: int) -> Any:
        """Its rows, only `columns`, as something of Arrow's or an iterator of record batches."""


class _Lazy:
    """A Polars LazyFrame: projections are pushed down into its plan."""

    def __init__(self, data: Any) -> None:
        self._data = data

    def empty(self) -> Any:
        return self._data.collect_schema().to_frame()

    def read(self, columns: Sequence[str], rows: int) -> Any:  # noqa: ARG002
        return self._data.select(list(columns)).collect()


class _Dataset:
    """A pyarrow dataset: fragments in their own order."""

    def __init__(self, data: Any) -> None:
        self._data = data

    def empty(self) -> Any:
        return self._data.schema.empty_table()

    def read(self, columns: Sequence[str], rows: int) -> Any:
        return self._data.scanner(columns=list(columns), batch_size=rows).to_batches()


class _Spark:
    """A Spark DataFrame, collected to this machine.  Spark promises no order of rows unless it sorts them."""

    def __init__(self, data: Any) -> None:
        self._data = data

    def empty(self) -> Any:
        return self._data.limit(0).toArrow()

    def read(self, columns: Sequence[str], rows: int) -> Any:  # noqa: ARG002
        quoted = ["`" + name.replace("`", "``") + "`" for name in columns]
        return self._data.select(*quoted).toArrow()


def frame_of(data: Any) -> Frame | None:
    """`data` as a Frame if it is one of these."""
    package = type(data).__module__.split(".")[0]
    if package == "polars" and hasattr(data, "collect_schema") and not hasattr(data, "to_arrow"):
        return _Lazy(data)
    if package == "pyarrow" and hasattr(data, "scanner") and hasattr(data, "schema"):
        return _Dataset(data)
    if package == "pyspark" and getattr(data, "isStreaming", False):
        raise SourceError(
            "a source of Spark: needed rows that end; got a streaming DataFrame; run a standing query over it with "
            "nile.spark.stream_query, or bring its rows into a live stream with nile.spark.stream_sink"
        )
    if package == "pyspark" and hasattr(data, "toArrow"):
        return _Spark(data)
    return None


class FrameSource:
    """A frame as a source.  Replayable."""

    def __init__(self, frame: Frame, *, name: str) -> None:
        """Raises SourceError when its columns cannot be told."""
        self.name = name
        self._frame = frame
        try:
            empty = frame.empty()
        except Exception as error:  # whatever the frame's own engine raises
            told = (str(error).splitlines() or [type(error).__name__])[0]
            raise SourceError(f"{name}: the frame cannot tell its columns: {told}; check its plan") from None
        self.schema: pa.Schema = ArrowSource(empty, name=name).schema

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[RawBatch]:
        """The rows, only `columns`, at most `rows` a batch.  Raises SourceError when computing it fails."""
        check_columns(self.schema, columns, where=self.name)
        try:
            made = self._frame.read(columns, rows)
        except Exception as error:  # whatever the frame's own engine raises
            told = (str(error).splitlines() or [type(error).__name__])[0]
            raise SourceError(f"{self.name}: the frame cannot be computed: {told}; check its plan") from None
        if hasattr(made, "__arrow_c_stream__"):
            yield from ArrowSource(made, name=self.name).batches(columns, rows)
            return
        first = next(made, None)
        if first is not None:
            yield from IterableSource(_again(first, made), name=self.name).batches(columns, rows)


def _again(first: Any, rest: Iterator[Any]) -> Iterator[Any]:
    yield first
    yield from rest
