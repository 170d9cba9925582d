"""Several files as one source, one after another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from glob import glob
from pathlib import Path
from typing import Any

from nile.base.plain import decoded, decoded_schema
from nile.base.raw import RawBatch, check_columns
from nile.streams.files.pruning import Pruning, batches_of, extent_of
from nile.summaries.errors import SourceError, SourceMissing
from nile.summaries.heavy import pa

__all__ = ["ManySource", "files_of", "is_glob", "ordered_as"]

_MOST_FILES = 100_000


def is_glob(path: str) -> bool:
    """Whether `path` names files by a pattern and is no file itself."""
    return any(letter in path for letter in "*?[") and not Path(path).expanduser().exists()


def files_of(pattern: str, *, name: str) -> list[str]:
    """The files a pattern names, in the order of their names.  Raises SourceMissing when there is none."""
    found = sorted(glob(str(Path(pattern).expanduser()), recursive=True))
    files = [path for path in found if Path(path).is_file()]
    if not files:
        raise SourceMissing(f"{name}: needed files like '{pattern}', there is none; check the pattern")
    if len(files) > _MOST_FILES:
        raise SourceError(
            f"{name}: needed at most {_MOST_FILES:,} files; '{pattern}' names {len(files):,}; narrow the pattern"
        )
    return files


class ManySource:
    """Sources of the same columns, read one after another.  Replayable when they are."""

    prunes = True

    def __init__(self, sources: Sequence[Any], *, name: str) -> None:
        """Raises SourceError when their columns differ, but for their order: it is the first one's."""
        self.name = name
        self._sources = tuple(sources)
        self.schema: pa.Schema = decoded_schema(self._sources[0].schema)
        for source in self._sources[1:]:
            own = ordered_as(self.schema, decoded_schema(source.schema))
            self.schema = _as_long(self.schema, own)
            if _as_long(own, self.schema) != self.schema:
                raise SourceError(
                    f"{name}: needed the same columns in all files; those of {source.name} differ from those of "
                    f"{self._sources[0].name}; name only files that are alike"
                )

    @property
    def rows(self) -> int | None:
        """How many rows there are, where all of them say so."""
        total = 0
        for source in self._sources:
            count = getattr(source, "rows", None)
            if not isinstance(count, int):
                return None
            total += count
        return total

    def extent(self, column: str) -> tuple[int, int] | None:
        """See `extent_of`."""
        found = []
        for source in self._sources:
            ends = extent_of(source, column)
            if ends is None:
                return None
            found.append(ends)
        return min(low for low, _ in found), max(high for _, high in found)

    def batches(
        self, columns: Sequence[str], rows: int, threads: int | None = None, pruning: Pruning | None = None
    ) -> Iterator[RawBatch]:
        """The rows, only `columns`, at most `rows` a batch; rows are numbered through all files."""
        check_columns(self.schema, columns, where=self.name)
        before = 0
        for source in self._sources:
            last = getattr(source, "rows", None) or 0  # rows at its end may be skipped
            for raw in batches_of(source, columns, rows, threads, pruning):
                last = max(last, *map(int, raw.rows[-1:]), *(bad.row for bad in raw.malformed), 0)
                names = raw.batch.schema.names
                arrays = [
                    _in(decoded(array), self.schema.field(name).type)
                    for name, array in zip(names, raw.batch.columns, strict=True)
                ]
                batch = pa.RecordBatch.from_arrays(arrays, names=names)
                malformed = [replace(bad, row=bad.row + before) for bad in raw.malformed]
                yield replace(raw, batch=batch, rows=raw.rows + before, malformed=malformed)
            before += last


def ordered_as(schema: pa.Schema, other: pa.Schema) -> pa.Schema:
    """The other schema with its columns in the order of the first, where they have the same names."""
    if sorted(schema.names) != sorted(other.names) or len(set(other.names)) < len(other):
        return other
    return pa.schema([other.field(name) for name in schema.names])


def _as_long(schema: pa.Schema, other: pa.Schema) -> pa.Schema:
    """The schema, with text and bytes in their long form where the other has that.

    No dictionary has it: of files that have it some may come encoded, and others not.
    """
    if len(schema) != len(other):
        return schema
    kinds = [b.type if _long(a.type) == b.type else a.type for a, b in zip(schema, other, strict=True)]
    return pa.schema(list(zip(schema.names, kinds, strict=True)))


def _long(kind: pa.DataType) -> pa.DataType:
    """The form of text or bytes with places of 64 bits."""
    if pa.types.is_string(kind):
        return pa.large_string()
    return pa.large_binary() if pa.types.is_binary(kind) else kind


def _in(array: pa.Array, kind: pa.DataType) -> pa.Array:
    return array.cast(kind) if array.type != kind and _long(array.type) == kind else array
