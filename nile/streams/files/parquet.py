"""Parquet files, and directories of them that Spark wrote.

A directory counts as one source when it holds part-*.parquet files and Spark's _SUCCESS mark; its parts are
read in the order of their names. One whose columns are exactly ordinal, ts and key is a *prepared* stream:
typed, filtered and ordered already, its ts in nanoseconds (given out as timestamp[ns]).
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from nile.base.pages import page_pool
from nile.base.plain import decoded_type, plain_array, plain_schema, plain_type
from nile.base.raw import RawBatch, check_columns
from nile.base.unchanged import Kept, Stamp, stamp_of
from nile.exact.join.threads import together
from nile.exact.state.lent import counted
from nile.expressions.possible import Ends
from nile.streams.files.coding import coded_column, held_column, is_text, sampled
from nile.streams.files.paths import existing_file, existing_path
from nile.streams.files.pruning import Pruning, ends_of_group, extent_of_groups, filled
from nile.summaries.errors import SourceError, SourceMissing
from nile.summaries.heavy import pa, pq

_SMALL_DICTIONARY = 64 << 10  # bytes on disk: a few thousand values
_MOST_TOGETHER = 1 << 31  # bytes of parts of a column that are put together
_WIDE = 8
"""Bytes of a value, about."""
_PREPARED = ["key", "ordinal", "ts"]


class ParquetSource:
    """A Parquet file, or a directory that Spark wrote, as a source. Replayable.

    Text columns of few distinct values come dictionary-encoded, so that a value is hashed once a batch
    however often it repeats. Reads about 50 million rows of two columns a second on two cores.
    """

    prunes = True

    def __init__(self, path: str | Path, *, name: str | None = None) -> None:
        """Reads the footers. Raises SourceMissing, or SourceError for an empty, truncated or foreign file."""
        self.name = name or str(path)
        self.times = Kept()
        """Event times of columns that were read and all are good and in order, int64 [rows] ns."""
        self.keys = Kept()
        """Key columns that were read whole: Arrow's, [rows]."""
        found = existing_path(path, "Parquet file")
        self._files = _parts(found) if found.is_dir() else [existing_file(path, "Parquet file")]
        self._opened = stamp_of(self._files)
        self._extents: dict[str, tuple[int, int] | None] = {}
        self._metadata: list[Any] = []
        schemas, total = [], 0
        prepared = found.is_dir()
        for file in self._files:
            with _reading(file), _open(file, ()) as reader:
                schemas.append(reader.schema_arrow.remove_metadata())
                self._metadata.append(reader.metadata)
                if prepared and sorted(schemas[-1].names) == _PREPARED:
                    total = _check_ordinals(file, reader.metadata, total)
                else:
                    prepared = False
            if schemas[-1] != schemas[0]:
                raise SourceError(
                    f"{file}: its columns differ from those of {self._files[0].name} beside it; "
                    "rewrite the directory with one set of columns"
                )
        self._encoded = [column.name for column in schemas[0] if self._is_encoded(column)]
        self._coded: str | None = None
        self._size = 0.0  # bytes of a text of it
        self._with_codes: dict[str, ParquetSource] = {}
        self.prepared = prepared
        with _reading(self._files[0]), _open(self._files[0], self._encoded) as reader:
            self._stored = stored = reader.schema_arrow.remove_metadata()
        schema = plain_schema(stored)
        self.rewritten = tuple(field.name for field in stored if _is_rewritten(field.type))
        if prepared:
            schema = schema.set(schema.get_field_index("ts"), pa.field("ts", pa.timestamp("ns")))
        self.schema = schema

    def coded(self, column: str) -> ParquetSource:
        """The source for who reads this key whole: texts are read in steps, as a dictionary where that pays.

        What is found out of the first rows stands as long as this source.  Raises SourceError.
        """
        if column not in self._with_codes:
            self._with_codes[column] = self._coding(column)
        return self._with_codes[column]

    def _coding(self, column: str) -> ParquetSource:
        at, kind = self._stored.get_field_index(column), self._stored.field(column).type
        if not is_text(kind) or column in self._encoded:
            return self
        other = copy.copy(self)
        other._coded = column
        with _reading(self._files[0]), _open(self._files[0], self._encoded, page_pool()) as reader:
            self._check(self._files[0], reader.schema_arrow, [column])
            pays, other._size = sampled(reader, column, kind)
        if pays:
            other.schema = self.schema.set(at, pa.field(column, pa.dictionary(pa.int32(), kind)))
        return other

    @property
    def stamp(self) -> Stamp | None:
        """What the files are like now, to tell whether they have changed since; None where that cannot be told."""
        return stamp_of(self._files)

    @property
    def rows(self) -> int:
        """How many rows there are, by the footers."""
        return sum(int(metadata.num_rows) for metadata in self._metadata)

    def _is_encoded(self, column: pa.Field) -> bool:
        """Whether a text column is stored with small dictionaries in all row groups of all files.

        Reading gives every batch the whole dictionary of its row group, so a large one costs more than it saves.
        """
        if not is_text(column.type):
            return False
        for metadata in self._metadata:
            for group in range(metadata.num_row_groups):
                chunk = _chunk(metadata.row_group(group), column.name)
                size = chunk.data_page_offset - (chunk.dictionary_page_offset or 0)
                if not (chunk.has_dictionary_page and 0 < size <= _SMALL_DICTIONARY):
                    return False
        return True

    def extent(self, column: str) -> tuple[int, int] | None:
        """See `extent_of`; of files that have changed since they were opened nothing is known."""
        kind = decoded_type(self._stored.field(column).type)
        if self._opened is None or not pa.types.is_timestamp(kind) or self.stamp != self._opened:
            return None
        if column not in self._extents:
            self._extents[column] = extent_of_groups(self._metadata, column, kind)
        return self._extents[column]

    def unchanged(
        self, stamp: Stamp | None, columns: Sequence[str], rows: int, threads: int | None, pruning: Pruning | None
    ) -> Iterator[tuple[slice, pa.RecordBatch]]:
        """(which rows, `columns` of them), at most `rows` at a time, of files that are as the stamp says.

        pruning: by which all rows are rows.  Raises SourceError where they change while they are read.
        """
        begin = 0
        if not columns:
            # Of all that are known: footers were read before a file was replaced.
            yield slice(None), pa.record_batch([])
        for count, batch in self._batches(columns, rows, threads, pruning) if columns else ():
            if stamp_of(self._files) != stamp:
                raise SourceError(f"{self.name}: changed while it was read; ask again once it is whole")
            end = begin + count
            yield slice(begin, end), batch
            begin = end

    def batches(
        self, columns: Sequence[str], rows: int, threads: int | None = None, pruning: Pruning | None = None
    ) -> Iterator[RawBatch]:
        """The rows, only `columns`, at most `rows` a batch.

        Raises SourceError if a file is broken inside, or has been replaced by one of other columns.

        Columns are decoded at once, as many as there are cores; where `threads` is 1 one after the other, so that only
        one has what its decoding takes beside it: several times as much as a column.  pruning: what need not be read.
        """
        start = 1
        for count, batch in self._batches(columns, rows, threads, pruning):
            if batch is not None:
                unread = count - batch.num_rows
                yield RawBatch(batch, counted(start, count - unread), unread=unread)
            start += count

    def _batches(
        self, columns: Sequence[str], rows: int, threads: int | None, pruning: Pruning | None
    ) -> Iterator[tuple[int, pa.RecordBatch | None]]:
        """(how many rows, their columns, empty where nothing is to be kept of them; None: they are no rows)."""
        check_columns(self.schema, columns, where=self.name)
        keep = [name for name in columns if pruning is not None and name in pruning.keep]
        pool = self._pool(columns)
        for file in self._files:
            with _reading(file), _open(file, self._encoded, pool) as reader:
                self._check(file, reader.schema_arrow, columns)
                for what, groups, ends in self._parts(reader.metadata, pruning):
                    names = {"read": list(columns), "fill": keep, "skip": []}[what]
                    if names or what == "read":
                        for arrays in self._read(file, reader, names, rows, threads, groups):
                            batch = self._batch(
                                columns, dict(zip(names, arrays, strict=True)), ends, len(arrays[0]) if arrays else 0
                            )
                            yield batch.num_rows, batch
                        continue
                    count = sum(reader.metadata.row_group(group).num_rows for group in groups or ())
                    if what == "skip":
                        yield count, None
                    elif pruning is None or not pruning.keep:
                        yield count, self._batch(columns, {}, ends, 0)
                    else:
                        for begin in range(0, count, rows):
                            length = min(rows, count - begin)
                            yield length, self._batch(columns, {}, ends, length)

    def _read(
        self, file: Path, reader: Any, columns: list[str], rows: int, threads: int | None, wanted: list[int] | None
    ) -> Iterator[list[Any]]:
        """The columns of row groups (None: of all), at most `rows` of them at a time."""
        coded = self._coded if self._coded in columns else None
        by_column = threads == 1 or coded is not None
        for groups in _groups(reader.metadata, rows, wanted) if by_column else [wanted]:
            found: dict[str, Any] = {}
            rest = [name for name in columns if name != coded]

            def code(groups: list[int], found: dict[str, Any]) -> None:
                made = coded_column if _is_dictionary(self.schema.field(coded)) else held_column
                with _open(file, self._encoded, page_pool()) as own:
                    found[str(coded)] = made(own, str(coded), self._stored.field(coded).type, groups, self._size)

            def read(groups: list[int], found: dict[str, Any], rest: list[str]) -> None:
                found.update((name, _column(reader, name, rows, groups)) for name in rest)

            if groups is not None and by_column:
                works = [partial(read, groups, found, rest)] + [partial(code, groups, found)] * (coded is not None)
                for some in [works] if threads != 1 else [[work] for work in works]:
                    together(some)
            if found and all(column is not None for column in found.values()):
                yield [found[name] for name in columns]
                continue
            batches = reader.iter_batches(batch_size=rows, row_groups=groups, columns=columns, use_threads=threads != 1)
            for batch in batches:
                yield [batch.column(batch.schema.get_field_index(name)) for name in columns]

    def _pool(self, columns: Sequence[str]) -> Any:
        """Which memory rows are read into: texts grow in it piece by piece, for which small pages cost most."""
        kinds = [self._stored.field(name).type for name in columns if name != self._coded]
        if not all(pa.types.is_primitive(kind) or pa.types.is_dictionary(kind) for kind in kinds):
            return None
        return page_pool(_WIDE * self.rows * len(kinds))

    def _parts(
        self, metadata: Any, pruning: Pruning | None
    ) -> Iterator[tuple[str, list[int] | None, Mapping[str, Ends]]]:
        """(what to do with row groups (see `Pruning.of`); these, None: all; the ends of one that is not read)."""
        if pruning is None:
            yield "read", None, {}
            return
        plain = [name for name in pruning.columns if name in self._stored.names and name not in self.rewritten]
        kinds = {name: decoded_type(self._stored.field(name).type) for name in plain}
        read: list[int] = []
        for group in range(metadata.num_row_groups):
            ends = ends_of_group(metadata, group, kinds)
            what = pruning.of(ends)
            if what == "read":
                read.append(group)
                continue
            if read:
                yield "read", read, {}
                read = []
            yield what, [group], ends
        if read:
            yield "read", read, {}

    def _batch(
        self, columns: Sequence[str], read: Mapping[str, Any], ends: Mapping[str, Ends], rows: int
    ) -> pa.RecordBatch:
        """What was read of `columns`, and what stands for the others."""
        arrays = []
        for name in columns:
            kind = self.schema.field(name).type
            if name not in read:
                arrays.append(filled(name, kind, rows, ends))
                continue
            array = plain_array(read[name])
            if pa.types.is_dictionary(kind) and name == self._coded and not _is_dictionary(array):
                array = array.dictionary_encode()
            arrays.append(array.cast(kind) if self.prepared and name == "ts" else array)
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([self.schema.field(name) for name in columns]))

    def _check(self, file: Path, found: pa.Schema, columns: Sequence[str]) -> None:
        """Raises SourceError where these columns are not what they were when the footers were read."""
        for name in columns:
            at = found.get_field_index(name)
            if at < 0 or found.field(at).type != self._stored.field(name).type:
                raise SourceError(
                    f"{file}: needed column '{name}' of type {decoded_type(self.schema.field(name).type)}, as when the "
                    "source was named; the file has been replaced by one of other columns; name it again"
                )


def is_kept(source: object, time: str, key: str) -> bool:
    """Whether event times and keys are kept of files as they are now: those that were just read for that, too."""
    if not isinstance(source, ParquetSource) or (stamp := source.stamp) is None:
        return False
    return source.times.get(time, stamp) is not None and source.keys.get(key, stamp) is not None


def _is_rewritten(kind: pa.DataType) -> bool:
    """Whether values of this type have another form in the file than in `plain_type`; others who read it are told."""
    if pa.types.is_nested(kind):
        return bool(plain_type(kind) != kind)
    return bool(isinstance(kind, pa.UuidType | pa.Bool8Type) or pa.types.is_float16(kind))


def _parts(directory: Path) -> list[Path]:
    parts = sorted(directory.glob("part-*.parquet"))
    if not parts:
        raise SourceError(
            f"{directory}: needed a Parquet, CSV or JSON-lines file, got a directory without part-*.parquet files; "
            f"name a file in it, or all by a pattern, '{directory}/**/*.parquet'"
        )
    if not (directory / "_SUCCESS").exists():
        raise SourceError(
            f"{directory}: Spark's _SUCCESS mark is missing, so its parts may be incomplete; "
            "run the job that writes it again"
        )
    return parts


def _open(file: Path, encoded: Sequence[str], pool: Any = None) -> Any:
    """pool: of which Arrow's memory is to be taken; None: as it is set."""
    how: dict[str, Any] = {"read_dictionary": list(encoded) or None, "pre_buffer": False}
    opened = pq.ParquetFile(file, **how)
    if pool is not None:
        opened.reader.close()
        opened.reader = pq.ParquetReader(memory_pool=pool)
        opened.reader.open(str(file), **how)
    return opened


def _groups(metadata: Any, rows: int, wanted: list[int] | None) -> Sequence[list[int] | None]:
    """The row groups, as many together as have at most `rows`; all together where one has more."""
    found: list[list[int]] = []
    together = 0
    for group in range(metadata.num_row_groups) if wanted is None else wanted:
        size = metadata.row_group(group).num_rows
        if size > rows:
            return [wanted]
        if not found or together + size > rows:
            found.append([])
            together = 0
        found[-1].append(group)
        together += size
    return found


def _column(reader: Any, name: str, rows: int, groups: list[int]) -> Any:
    """A column of row groups; None where one array does not hold it.  Once it is out, nothing keeps what decodes it."""
    batches = reader.iter_batches(batch_size=rows, row_groups=groups, columns=[name], use_threads=False)
    parts = [batch.column(batch.schema.get_field_index(name)) for batch in batches]
    if len(parts) == 1:
        return parts[0]
    # Text comes in a part of each row group, and has no more than 2 GiB in one array; dictionaries are each one's own.
    fits = sum(part.nbytes for part in parts) < _MOST_TOGETHER and not any(map(_is_dictionary, parts))
    return pa.concat_arrays(parts) if parts and fits else None


def _is_dictionary(column: Any) -> bool:
    return bool(pa.types.is_dictionary(column.type))


def _chunk(row_group: Any, column: str) -> Any:
    """The metadata of one top-level column in a row group."""
    return next(
        chunk
        for chunk in (row_group.column(at) for at in range(row_group.num_columns))
        if chunk.path_in_schema == column
    )


def _check_ordinals(file: Path, metadata: Any, start: int) -> int:
    """Compares the ordinals' statistics with the number of rows read so far: a lost part shows here."""
    for group in range(metadata.num_row_groups):
        rows = metadata.row_group(group)
        statistics = _chunk(rows, "ordinal").statistics
        if statistics is not None and statistics.has_min_max and statistics.min != start:
            raise SourceError(
                f"{file}: needed tuple {start} next, found {statistics.min}; a part is missing or out of order, "
                "prepare the stream again"
            )
        start += rows.num_rows
    return start


@contextmanager
def _reading(file: Path) -> Iterator[None]:
    """Turns what pyarrow raises for a broken file into a SourceError."""
    try:
        yield
    except FileNotFoundError:
        raise SourceMissing(f"{file}: needed a Parquet file, there is nothing of that name any more") from None
    except (pa.ArrowException, OSError) as error:
        if file.stat().st_size == 0:
            reason = "the file is empty"
        elif "magic bytes" in str(error) or "footer" in str(error):
            reason = "it has no Parquet footer, so it is cut short or not Parquet at all"
        else:
            reason = f"it is broken: {str(error).splitlines()[0]}"
        raise SourceError(f"{file}: needed a whole Parquet file; {reason}; write or copy it again") from None
