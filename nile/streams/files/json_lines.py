"""JSON lines: an object per line, typed by the first ones; what does not fit is set aside, never lost.

`infer_json(path)` gives the columns of a file and their types; the direct path and the Spark path use it, so that a
file is typed alike on both. The rules:

  - UTF-8 (a byte order mark is skipped), an object per line, blank lines are skipped; names in the order in which they
    are first seen; a name that a line does not have is null there. A file whose name ends in .gz is unpacked as it is
    read.
  - Types come from the first INFER_ROWS objects, as those of CSV cells do, but JSON text is text or a time and never a
    number. Objects, arrays, and what is of several types, are text: JSON's own, without spaces.
  - A later value that does not fit its column, or is not UTF-8, makes its row a rejected one if the query needs that
    column. A line that is no object is rejected.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nile.base.cells import NOT_UTF8, infer_type, parse_cells
from nile.base.raw import Malformed, RawBatch, check_columns
from nile.streams.files.csv import INFER_ROWS, settled, together
from nile.streams.files.paths import TORN, existing_file, opened
from nile.summaries.errors import SourceError
from nile.summaries.heavy import pa, pajson

__all__ = ["JsonSource", "columns_alike", "infer_json", "is_json"]

NO_OBJECT = "no JSON object"
SUFFIXES = (".json", ".jsonl", ".ndjson")

_BLOCK = 1 << 22
_LONGEST = 1 << 26
"""Bytes of a line beyond which a file is not one of lines."""


class _Number(str):
    """A number as it is written."""

    __slots__ = ()


def is_json(path: str | Path) -> bool:
    """Whether a file's name says that it has JSON lines."""
    return str(path).lower().removesuffix(".gz").endswith(SUFFIXES)


def infer_json(path: str | Path) -> pa.Schema:
    """The columns of a file of JSON lines and their types, by the rules above.  Reads the first blocks only.

    Raises SourceMissing, and SourceError for a directory and for a file without an object.
    """
    return settled(_infer(existing_file(path, "file of JSON lines")))


def _infer(file: Path) -> pa.Schema:
    """As `infer_json`, with the null type for a column without any value."""
    cells: dict[str, list[str]] = {}
    texts: set[str] = set()
    count = 0
    for lines in _blocks(file):
        for line in lines:
            found = _object(line)
            if found is None or count >= INFER_ROWS:
                continue
            count += 1
            for name, value in found.items():
                given = cells.setdefault(name, [])
                if isinstance(value, dict | list) or (type(value) is str and value):
                    texts.add(name)
                if value is not None:
                    given.append(_cell(value, line, name))
        if count >= INFER_ROWS:
            break
    if not count:
        raise SourceError(f"{file}: needed JSON lines, an object per line; got no object; write one object per line")
    fields = []
    for name, given in cells.items():
        kind = infer_type(pa.array(given, pa.string())) if any(given) or name in texts else pa.null()
        number = not (pa.types.is_timestamp(kind) or pa.types.is_string(kind) or pa.types.is_null(kind))
        fields.append((_whole(name), pa.string() if name in texts and number else kind))
    return pa.schema(fields)


class JsonSource:
    """A file of JSON lines as a source.  Replayable; one pass costs about 100 ns a value, 1 us where lines misfit."""

    def __init__(self, path: str | Path, *, name: str | None = None) -> None:
        """Reads the first lines.  `name` is what messages call it.  Raises as `infer_json`."""
        self.path = Path(path).expanduser()
        self.name = name or str(path)
        self.found = _infer(existing_file(self.path, "file of JSON lines"))
        """Its types by its own first lines; null without any value."""
        self.schema = settled(self.found)

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[RawBatch]:
        """The rows, only `columns`, at most `rows` a batch.  Raises SourceError if the file breaks off."""
        check_columns(self.schema, columns, where=str(self.path))
        schema = pa.schema([self.schema.field(name) for name in columns])
        # Arrow counts no rows without a column.
        read = schema if columns else pa.schema([self.schema.field(0)])
        first = 1
        for lines in _blocks(self.path):
            for start in range(0, len(lines), rows):
                some = lines[start : start + rows]
                typed = _at_once(some, read)
                if typed is None:
                    yield _one_by_one(some, schema, first)
                else:
                    yield RawBatch(typed.select(columns), np.arange(first, first + len(some), dtype=np.int64))
                first += len(some)


def columns_alike(sources: Sequence[JsonSource]) -> None:
    """Give files all columns that one of them has, null where a line has not, and the types of all values together."""
    names = list(dict.fromkeys(name for each in sources for name in each.found.names))
    kinds = [together([each.found.field(name).type for each in sources if name in each.found.names]) for name in names]
    for each in sources:
        each.schema = settled(pa.schema(list(zip(names, kinds, strict=True))))


def _blocks(path: Path) -> Iterator[list[bytes]]:
    """The lines that are not blank, some 4 MiB at a time.  Raises SourceError."""
    left = b""
    with opened(path, "file of JSON lines") as file:
        begin = True
        while True:
            try:
                block = file.read(_BLOCK)
            except TORN as error:
                raise SourceError(f"{path}: cannot be read as JSON lines: {str(error).splitlines()[0]}") from None
            if begin:
                begin, block = False, block.removeprefix(b"\xef\xbb\xbf")
                _refuse_other(path, block)
            text = left + block
            lines = text.split(b"\n")
            left = lines.pop() if block else b""
            if len(left) > _LONGEST:
                raise SourceError(
                    f"{path}: needed JSON lines, an object per line; got a line of more than {_LONGEST >> 20} MiB; "
                    "write one object per line"
                )
            if found := [line for line in lines if line and not line.isspace()]:
                yield found
            if not block:
                return


def _refuse_other(path: Path, start: bytes) -> None:
    if start.startswith(b"PAR1") or b"\0" in start[:1024]:
        raise SourceError(f"{path}: this is no file of JSON lines in UTF-8 (it has zero bytes); convert it")
    if start.lstrip().startswith(b"["):
        raise SourceError(
            f"{path}: needed JSON lines, an object per line; got a JSON array; write its objects on lines of their own "
            "(jq -c '.[]')"
        )


def _at_once(lines: Sequence[bytes], schema: pa.Schema) -> pa.RecordBatch | None:
    """The rows by Arrow's reader, or None where a value or a line does not fit, or may not."""
    text = b"\n".join(lines)
    if not text.isascii():
        try:
            told = text.decode()
        except UnicodeDecodeError:
            return None
        if NOT_UTF8 in told:
            return None
    asked = pa.schema([(f.name, pa.string() if pa.types.is_timestamp(f.type) else f.type) for f in schema])
    try:
        table = pajson.read_json(
            pa.BufferReader(text),
            read_options=pajson.ReadOptions(use_threads=False, block_size=len(text) + 1),
            parse_options=pajson.ParseOptions(explicit_schema=asked, unexpected_field_behavior="ignore"),
        )
    except pa.ArrowException:
        return None
    if table.num_rows != len(lines) or table.schema.names != schema.names:
        return None
    arrays = []
    for field, column in zip(schema, table.combine_chunks().columns, strict=True):
        values = column.chunk(0) if column.num_chunks else pa.array([], column.type)
        if pa.types.is_timestamp(field.type):
            values, misfit = parse_cells(values.fill_null(""), field.type)
            if misfit is not None:
                return None
        arrays.append(values)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _one_by_one(lines: Sequence[bytes], schema: pa.Schema, first: int) -> RawBatch:
    """The rows of these lines, numbered from `first` on, and what does not fit of them."""
    cells: list[list[str | None]] = [[] for _ in schema]
    malformed, numbers = [], []
    for number, line in enumerate(lines, first):
        found = _object(line)
        if found is None:
            malformed.append(Malformed(number, NO_OBJECT, line.decode("utf-8", "replace").strip()))
            continue
        numbers.append(number)
        for column, name in zip(cells, schema.names, strict=True):
            value = found.get(name)
            column.append(None if value is None else _cell(value, line, name))
    arrays, misfits, texts = [], {}, []
    for field, column in zip(schema, cells, strict=True):
        given = pa.array(column, pa.string())
        text = given.fill_null("")
        values, misfit = parse_cells(text, field.type)
        if pa.types.is_string(field.type) and misfit is None:
            values = given  # an empty text is one
        elif misfit is not None:
            misfits[field.name] = misfit
        arrays.append(values)
        texts.append(text)
    batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
    shown = pa.RecordBatch.from_arrays(texts, schema=pa.schema([(name, pa.string()) for name in schema.names]))
    return RawBatch(batch, np.array(numbers, np.int64), malformed, misfits, shown)


def _object(line: bytes) -> dict[str, Any] | None:
    """What a line says, numbers as they are written; None: no object."""
    try:
        found = json.loads(line.decode("utf-8", "replace"), parse_int=_Number, parse_float=_Number)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _cell(value: Any, line: bytes, name: str) -> str:
    """A value as text."""
    if isinstance(value, str):
        return _whole(str(value))
    if isinstance(value, dict | list):
        value = json.loads(line.decode("utf-8", "replace"))[name]
        return _whole(json.dumps(value, separators=(",", ":"), ensure_ascii=False))
    return json.dumps(value)


def _whole(text: str) -> str:
    """Text that UTF-8 has: half of a pair of surrogates is no sign."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
