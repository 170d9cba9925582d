"""Sources: what `open_source` makes of a path, a table, a DataFrame, an iterable or a function."""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from nile.base.raw import RawBatch
from nile.pyramid.lake.lake import LakeStream
from nile.streams.arrow import ArrowSource, CallableSource, IterableSource, has_columns, rows_together
from nile.streams.awaited import awaited
from nile.streams.files.csv import CsvSource, type_alike
from nile.streams.files.folders import FolderColumns, files_below
from nile.streams.files.json_lines import JsonSource, columns_alike, is_json
from nile.streams.files.many import ManySource, files_of, is_glob
from nile.streams.files.parquet import ParquetSource
from nile.streams.files.paths import existing_path
from nile.streams.frames import FrameSource, StreamingFrame, frame_of
from nile.streams.lake import LakeSource, is_lake_stream
from nile.summaries.errors import SourceError
from nile.summaries.heavy import pa

if TYPE_CHECKING:
    from nile.pyramid.history.history import History


@runtime_checkable
class Source(Protocol):
    """Anything that gives a stream's rows. `batches` may be called again unless the input is one-shot."""

    name: str
    schema: pa.Schema

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[RawBatch]:
        """The rows in arrival order, only `columns`, at most `rows` a batch."""


@runtime_checkable
class CountedSource(Protocol):
    """A source that knows how many rows it has without reading them; None: this one does not."""

    @property
    def rows(self) -> int | None: ...


@runtime_checkable
class KeptSource(Protocol):
    """A source that keeps its rows, indexed by key; None: this one does not keep all."""

    @property
    def history(self) -> History | None: ...


def open_source(data: Any, *, name: str) -> Source:
    """`data` as a source; `name` is what messages call it.

    A path to a .parquet, .csv or JSON-lines file (.ndjson, .jsonl, .json; the texts also as .gz) or to a directory
    that Spark wrote, a glob of such files, or a path to a stream of a lake; folders called `column=value` on the way
    to files are columns (`files.folders`); an Arrow table, record batch, reader or dataset; a Polars LazyFrame; a Spark
    DataFrame; anything with `__arrow_c_stream__` (pandas, Polars, DuckDB); a dict of columns, a dict that is a row or a
    list of such rows; an iterable or async iterable of all these (`nile.streams.awaited`); a function without arguments
    that returns any of these; or a Source.
    Opening reads only what tells the columns.  Rows of a streaming DataFrame only standing queries of Spark read.
    Raises SourceMissing or SourceError.
    """
    if isinstance(data, (str, Path)):
        return _open_path(data, name)
    data = rows_together(data)
    if StreamingFrame.is_one(data):
        return StreamingFrame(data, name=name)
    frame = frame_of(data)
    if frame is not None:
        return FrameSource(frame, name=name)
    if isinstance(data, Mapping) or has_columns(data):
        return ArrowSource(data, name=name)
    if hasattr(data, "batches") and isinstance(data, Source) and not isinstance(data, type):
        return data
    if isinstance(data, Iterable) and not isinstance(data, (bytes, bytearray, memoryview)):
        return IterableSource(data, name=name)
    if isinstance(data, AsyncIterable):
        return IterableSource(awaited(data), name=name)
    if callable(data):
        return CallableSource(data, lambda made: _made(made, name), name=name)
    hint = "; collect it first" if hasattr(data, "collect") else ""
    raise SourceError(
        f"{name}: needed a path to a .parquet, .csv or .ndjson file, an Arrow table or reader, a DataFrame, a dict of "
        f"columns, rows as dicts, an iterable of such, or a function that returns one; got {type(data).__name__}{hint}"
    )


def _made(data: Any, name: str) -> Source:
    if callable(data) and not isinstance(data, Source):
        raise SourceError(f"{name}: the function returned another function; return a path, a table or an iterable")
    return open_source(data, name=name)


def _open_path(path: str | Path, name: str) -> Source:
    text = str(path)
    if "://" in text:
        raise SourceError(f"{name}: needed a local file, got '{text}'; copy it here first")
    if is_glob(text):
        return _open_files(files_of(text, name=name), name)
    found = existing_path(text, "Parquet, CSV or JSON-lines file")
    if not found.is_dir():
        return _open_files([text], name)
    if is_lake_stream(found):
        return LakeSource(LakeStream.at(found), name=name)
    files = files_below(found, name)
    return _open_files(files, name) if files else ParquetSource(text, name=name)


def _open_files(files: Sequence[str], name: str) -> Source:
    folders = FolderColumns.of(files)
    if len(files) == 1:
        only: Source = folders.source(_open_file(files[0], name), 0)
        return only
    opened = [_open_file(file, file) for file in files]
    texts = [each for each in opened if isinstance(each, CsvSource)]
    if len(texts) == len(opened):
        type_alike(texts)
    objects = [each for each in opened if isinstance(each, JsonSource)]
    if len(objects) == len(opened):
        columns_alike(objects)
    return ManySource([folders.source(each, at) for at, each in enumerate(opened)], name=name)


def _open_file(text: str, name: str) -> Source:
    suffix = Path(text).suffix.lower()
    if suffix in (".parquet", ".pq"):
        return ParquetSource(text, name=name)
    if suffix == ".csv" or text.lower().endswith(".csv.gz"):
        return CsvSource(text, name=name)
    if is_json(text):
        return JsonSource(text, name=name)
    raise SourceError(
        f"{name}: needed a .parquet, .csv or .ndjson file (.csv.gz, .ndjson.gz); got '{text}'; rename or convert it"
    )
