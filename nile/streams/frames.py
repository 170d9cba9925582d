"""Frames that have not been computed yet: Polars LazyFrames, pyarrow datasets, Spark DataFrames.

Opening one asks for its columns only; each reading computes it anew, with only the columns that are needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from nile.base.raw import RawBatch, check_columns
from nile.streams.arrow import ArrowSource, IterableSource
from nile.summaries.errors import SourceError
from nile.summaries.heavy import pa, spark_types

__all__ = ["FrameSource", "StreamingFrame", "frame_of", "frame_schema"]


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
    """`data` as a Frame if it is one of these that ends."""
    package = type(data).__module__.split(".")[0]
    if package == "polars" and hasattr(data, "collect_schema") and not hasattr(data, "to_arrow"):
        return _Lazy(data)
    if package == "pyarrow" and hasattr(data, "scanner") and hasattr(data, "schema"):
        return _Dataset(data)
    if package == "pyspark" and hasattr(data, "toArrow"):
        return _Spark(data)
    return None


def frame_schema(frame: Any, name: str) -> pa.Schema:
    """The columns of a DataFrame of Spark.  Raises SourceError for values that are not plain, names that come twice."""
    fields = []
    for field in frame.schema.fields:
        try:
            fields.append((field.name, spark_types.to_arrow_type(field.dataType, timezone="UTC")))
        except Exception:
            raise SourceError(
                f"{name}: column '{field.name}': needed plain values; got {field.dataType.simpleString()}; "
                "flatten or cast it before"
            ) from None
    schema = pa.schema(fields)
    repeated = sorted({one for one in schema.names if schema.names.count(one) > 1})
    if repeated:
        raise SourceError(f"{name}: needed one column '{repeated[0]}'; got several; rename the others")
    return schema


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


class StreamingFrame:
    """A streaming DataFrame of Spark: standing queries of Spark run over it, nothing else reads its rows."""

    def __init__(self, frame: Any, *, name: str) -> None:
        """Raises SourceError for columns whose values are not plain."""
        self.name = name
        self.frame = frame
        self.schema = frame_schema(frame, name)

    @staticmethod
    def is_one(data: Any) -> bool:
        """Whether it is one."""
        return type(data).__module__.split(".")[0] == "pyspark" and bool(getattr(data, "isStreaming", False))

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[RawBatch]:  # noqa: ARG002
        """Raises SourceError."""
        raise SourceError(
            f"{self.name}: needed rows that end; got a streaming DataFrame; ask db.sql(..., engine='spark') for a "
            "standing query over it, or bring its rows into a live stream with nile.spark.stream_sink"
        )


def _again(first: Any, rest: Iterator[Any]) -> Iterator[Any]:
    yield first
    yield from rest
