"""Folders called `column=value`, as Hive, Spark and COPY ... PARTITION_BY write them: columns that lie in no file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from nile.base.cells import infer_type, parse_cells
from nile.base.raw import RawBatch, check_columns
from nile.expressions.possible import Ends
from nile.streams.files.pruning import Pruning, batches_of, extent_of
from nile.summaries.errors import SourceError, SourceMissing
from nile.summaries.heavy import pa

__all__ = ["FolderColumns", "FolderSource", "files_below"]

_NULL = "__HIVE_DEFAULT_PARTITION__"
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_KINDS = ((".parquet", ".pq"), (".csv",), (".json", ".jsonl", ".ndjson"))
"""Ends of names of files that are alike."""


def files_below(folder: Path, name: str) -> list[str]:
    """The files in folders called `column=value` below a folder, in the order of their names; empty where it has none.

    Names that begin with _ or . are of writers that are not done (Spark).  Raises SourceMissing where no folder has a
    file, SourceError where some are of another kind.
    """
    if not any("=" in each.name and each.is_dir() for each in folder.iterdir()):
        return []
    files = [
        path
        for path in sorted(folder.rglob("*"))
        if not any(part.startswith(("_", ".")) for part in path.relative_to(folder).parts) and path.is_file()
    ]
    if not files:
        raise SourceMissing(f"{name}: needed files in the folders of '{folder}', there is none; check the path")
    ends = {path.suffix.lower() for path in files}
    if not any(ends <= set(kind) for kind in _KINDS):
        raise SourceError(
            f"{name}: needed .parquet, .csv or .json files, of one kind, below '{folder}'; got "
            f"{', '.join(sorted(ends))}; name them by a pattern, '{folder}/**/*.parquet'"
        )
    return list(map(str, files))


@dataclass(frozen=True, slots=True)
class FolderColumns:
    """What the names of folders say of files.

    texts: by column, of each file the value as text, None for null.  schema: the columns and their types: those that a
    CSV file's cells have, or date32 where all are days.
    """

    texts: Mapping[str, tuple[str | None, ...]]
    schema: pa.Schema

    @classmethod
    def of(cls, files: Sequence[str | Path]) -> FolderColumns:
        """Of the files' paths; none where not all of them lie in folders of the same columns."""
        found = [_named(Path(file).parts[:-1]) for file in files]
        names = list(found[0]) if found else []
        if any(each.keys() != found[0].keys() for each in found):
            names = []
        texts = {name: tuple(each[name] for each in found) for name in names}
        return cls(texts, pa.schema([(name, _kind(column)) for name, column in texts.items()]))

    def beside(self, schema: pa.Schema) -> pa.Schema:
        """The columns of files with these: one that both have is the folders'."""
        own = [self.schema.field(name) if name in self.texts else schema.field(name) for name in schema.names]
        return pa.schema([*own, *(field for field in self.schema if field.name not in schema.names)])

    def values(self, name: str) -> pa.Array:
        """Of each file the value of a column."""
        kind = self.schema.field(name).type
        cells = pa.array(self.texts[name], pa.string())
        return cells.cast(kind) if pa.types.is_date(kind) else parse_cells(cells, kind)[0]

    def source(self, source: Any, at: int) -> Any:
        """The source of file `at` with these columns."""
        if not self.texts:
            return source
        own = {name: texts[at : at + 1] for name, texts in self.texts.items()}
        return FolderSource(source, FolderColumns(own, self.schema))


def _named(folders: Sequence[str]) -> dict[str, str | None]:
    named = {}
    for folder in folders:
        name, equals, value = folder.partition("=")
        if name and equals:
            named[unquote(name)] = None if value == _NULL else unquote(value)
    return named


def _kind(texts: Sequence[str | None]) -> pa.DataType:
    cells = pa.array(texts, pa.string())
    kind = infer_type(cells)
    days = pa.types.is_timestamp(kind) and all(text is None or _DAY.fullmatch(text) for text in texts)
    return pa.date32() if days else kind


class FolderSource:
    """A file with columns of one value each, as its folders' names give them.  Replayable where the file is."""

    prunes = True

    def __init__(self, file: Any, folders: FolderColumns) -> None:
        """folders: of this file alone."""
        self.name: str = file.name
        self.file = file
        self.folders = folders
        self.schema = folders.beside(file.schema)
        self._values = {name: folders.values(name)[0] for name in folders.texts}

    @property
    def rows(self) -> int | None:
        """How many rows there are, where the file says so."""
        count = getattr(self.file, "rows", None)
        return count if isinstance(count, int) else None

    def extent(self, column: str) -> tuple[int, int] | None:
        """See `extent_of`."""
        return None if column in self._values else extent_of(self.file, column)

    def batches(
        self, columns: Sequence[str], rows: int, threads: int | None = None, pruning: Pruning | None = None
    ) -> Iterator[RawBatch]:
        """The rows, only `columns`, at most `rows` a batch."""
        check_columns(self.schema, columns, where=self.name)
        schema = pa.schema([self.schema.field(name) for name in columns])
        stored = [name for name in columns if name not in self._values]
        known = pruning and pruning.knowing({name: _ends(value) for name, value in self._values.items()})
        for raw in batches_of(self.file, stored or self.file.schema.names[:1], rows, threads, known):
            arrays = [
                pa.repeat(self._values[name], raw.batch.num_rows)
                if name in self._values
                else raw.batch.column(stored.index(name))
                for name in columns
            ]
            misfits = {name: cells for name, cells in raw.misfits.items() if name in stored}
            yield replace(raw, batch=pa.RecordBatch.from_arrays(arrays, schema=schema), misfits=misfits)


def _ends(value: pa.Scalar) -> Ends:
    return Ends(pa.array([value, value], value.type), 0, 1) if value.is_valid else Ends(None, 1, 1)
