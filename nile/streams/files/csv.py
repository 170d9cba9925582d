"""CSV files: text cells, typed by their first rows; what does not fit is set aside, never lost.

`infer_types(path)` gives the types of a file's columns; both the direct path and the Spark path use it,
so that a file is typed alike on both. The rules (see `cells` for the patterns):

  - UTF-8 (a byte order mark is skipped), commas, double quotes (doubled inside), a header line;
    quoted cells may hold line ends; blank lines are skipped; an empty cell is null, quoted or not.
  - Types come from the first INFER_ROWS well-formed rows: int64, float64, bool, timestamp[us]
    (timestamp[ns] if a cell needs it; times without zone are UTC) or text. Cells of typed columns are
    trimmed of ASCII white space first.
  - A later cell that does not fit its column, or that holds bytes that are not UTF-8, makes its row a
    rejected one if the query needs that column. A line with the wrong number of fields is rejected.
  - A file whose name ends in .gz is unpacked as it is read.
  - A quote that is opened and never closed swallows the rest of the file: SourceError.
"""

from __future__ import annotations

import atexit
import codecs
import io
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np

from nile.base.cells import NUMBER, TIMESTAMP, infer_type, parse_cells
from nile.base.interrupts import INTERRUPTS
from nile.base.raw import Malformed, RawBatch, check_columns
from nile.streams.files.paths import TORN, existing_file, opened
from nile.summaries.errors import SourceError
from nile.summaries.heavy import pa, pacsv, pc

INFER_ROWS = 10_000
"""How many rows decide the types."""

WRONG_FIELDS = "wrong number of fields"

_BLOCK = 1 << 22
_PATIENCE = 1.0  # seconds
_LETTING_GO = 0.1  # seconds, of which it takes microseconds on a machine that is not loaded
_END = "\x1enile: end of file\x1e"


def infer_types(path: str | Path) -> pa.Schema:
    """The columns of a CSV file and their types, by the rules above. Reads the first blocks only.

    Raises SourceMissing, and SourceError for a directory, an empty file, a file that is not text or has
    no header.
    """
    return settled(_infer_types(path))


def _infer_types(path: str | Path) -> pa.Schema:
    """As `infer_types`, with the null type for a column without any cell."""
    file = existing_file(path, "CSV file")
    names = _header(file)
    sample: list[pa.RecordBatch] = []
    for batch, _ in _text_batches(file, names, None):
        sample.append(batch)
        if sum(map(len, sample)) >= INFER_ROWS:
            break
    types = []
    for position in range(len(names)):
        chunks = [batch.column(position) for batch in sample]
        cells = (pa.concat_arrays(chunks) if chunks else pa.array([], pa.string())).slice(0, INFER_ROWS)
        kind = infer_type(cells)
        if pa.types.is_string(kind) and not pc.any(pc.match_substring_regex(cells, r"\S")).as_py():
            kind = pa.null()
        types.append(kind)
    return pa.schema(list(zip(names, types, strict=True)))


def settled(schema: pa.Schema) -> pa.Schema:
    """Columns without any cell as text."""
    return pa.schema([(field.name, pa.string() if pa.types.is_null(field.type) else field.type) for field in schema])


def type_alike(sources: Sequence[CsvSource]) -> None:
    """Give files of the same columns (in any order) the types that the cells of all have together.

    Whole numbers beside others are numbers, a column without cells is what others say, what else differs is text.
    """
    names = sources[0].schema.names
    if len(sources) == 1 or any(sorted(each.schema.names) != sorted(names) for each in sources):
        return
    kinds = {name: together([each.found.field(name).type for each in sources]) for name in names}
    for each in sources:
        each.schema = settled(pa.schema([(name, kinds[name]) for name in each.schema.names]))


def together(kinds: Sequence[pa.DataType]) -> pa.DataType:
    """The type that columns of these types have together."""
    found = set(kinds) - {pa.null()} or {pa.null()}
    for wide, narrow in ((pa.float64(), pa.int64()), (pa.timestamp("ns"), pa.timestamp("us"))):
        if found == {wide, narrow}:
            return wide
    return found.pop() if len(found) == 1 else pa.string()


class CsvSource:
    """A CSV file as a source. Replayable; one pass costs about 10 million cells per second and core."""

    def __init__(self, path: str | Path, *, name: str | None = None) -> None:
        """Reads the header and the first rows. `name` is what messages call it. Raises as `infer_types`."""
        self.path = Path(path).expanduser()
        self.name = name or str(path)
        self.found = _infer_types(self.path)
        """Its types by its own first rows; null without any cell."""
        self.schema = settled(self.found)

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[RawBatch]:
        """The rows, only `columns`, at most `rows` a batch. Raises SourceError if the file breaks off."""
        check_columns(self.schema, columns, where=str(self.path))
        numbering = _Numbering()
        for block, malformed in _text_batches(self.path, self.schema.names, columns):
            numbering.skip(malformed)
            for start in range(0, max(len(block), 1), rows):
                text = block.slice(start, rows)
                yield self._typed(text, numbering.take(len(text)), malformed if start == 0 else ())

    def _typed(self, text: pa.RecordBatch, rows: np.ndarray, malformed: Sequence[Malformed]) -> RawBatch:
        arrays, misfits = [], {}
        for name, cells in zip(text.schema.names, text.columns, strict=True):
            values, misfit = parse_cells(cells, self.schema.field(name).type)
            arrays.append(values)
            if misfit is not None:
                misfits[name] = misfit
        schema = pa.schema([self.schema.field(name) for name in text.schema.names])
        batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
        return RawBatch(batch, rows, malformed, misfits, text)


class _Numbering:
    """Numbers rows from 1, leaving out the numbers that malformed rows took."""

    def __init__(self) -> None:
        self._next = 1
        self._skipped = np.empty(0, np.int64)

    def skip(self, malformed: Sequence[Malformed]) -> None:
        if malformed:
            taken = np.array([row.row for row in malformed], np.int64)
            self._skipped = np.concatenate([self._skipped[self._skipped >= self._next], taken])

    def take(self, count: int) -> np.ndarray:
        stop = self._next + count
        while True:
            inside = self._skipped[(self._skipped >= self._next) & (self._skipped < stop)]
            if stop == self._next + count + len(inside):
                break
            stop = self._next + count + len(inside)
        rows = np.arange(self._next, stop, dtype=np.int64)
        self._next = stop
        return np.setdiff1d(rows, inside, assume_unique=True) if len(inside) else rows


def _text_batches(
    path: Path, names: Sequence[str], columns: Sequence[str] | None
) -> Iterator[tuple[pa.RecordBatch, list[Malformed]]]:
    """Blocks of rows as text (all columns when `columns` is None), each with malformed rows met so far.

    A line is appended to the file that has the wrong number of fields. It comes back as malformed unless
    an open quote swallowed it: this is how an unclosed quote shows.
    """
    malformed: list[Malformed] = []
    ended = False

    def on_malformed(row: Any) -> str:
        nonlocal ended
        if row.text.startswith(_END):
            ended = True
        else:
            malformed.append(Malformed(row.number - 1, WRONG_FIELDS, row.text))
        return "skip"

    converted = pacsv.ConvertOptions(
        column_types={name: pa.string() for name in names},
        include_columns=None if columns is None else list(columns),
        strings_can_be_null=False,
    )
    with (
        opened(path, "CSV file") as file,
        _Blocks(file, _END + ("," if len(names) == 1 else ""), on_malformed) as blocks,
    ):
        try:
            for batch in blocks.batches(converted):
                found, malformed[:] = list(malformed), []
                if len(batch) or found:
                    yield batch, found
        except (pa.ArrowInvalid, pa.ArrowKeyError, *TORN) as error:
            raise _broken(path, error) from None
    if malformed:
        empty = pa.schema([(name, pa.string()) for name in (names if columns is None else columns)])
        yield pa.RecordBatch.from_pylist([], schema=empty), list(malformed)
    if not ended:
        raise SourceError(
            f"{path}: a double quote is opened and never closed, so the rows after it read as one cell; "
            'close it, or write a quote inside a quoted cell twice ("")'
        )


def _header(path: Path) -> list[str]:
    try:
        with opened(path, "CSV file") as file:
            start = file.read(1 << 16)
    except TORN as error:
        raise _broken(path, error) from None
    if not start.strip(b"\xef\xbb\xbf \t\r\n"):
        raise SourceError(f"{path}: the file is empty; needed a header line with the column names")
    if start.startswith(b"PAR1") or b"\0" in start:
        raise SourceError(f"{path}: this is not a CSV file in UTF-8 (it has zero bytes); convert it")
    with opened(path, "CSV file") as file, _Blocks(file, _END, lambda _: "skip") as blocks:
        try:
            names = list(blocks.opened().schema.names)
        except (pa.ArrowInvalid, *TORN) as error:
            raise _broken(path, error) from None
    first = start.removeprefix(b"\xef\xbb\xbf").lstrip()
    if len(names) == 1 and not first.startswith(b'"') and (mark := next((m for m in ";\t|" if m in names[0]), None)):
        raise SourceError(
            f"{path}: needed a header line with ',' between the column names; got {names[0][:80]!r}, with {mark!r}; "
            f"convert the file, or read it with another library (pandas.read_csv(path, sep={mark!r})) and register that"
        )
    data = pc.match_substring_regex(pa.array(names, pa.string()), f"{NUMBER}|{TIMESTAMP}|^$")
    if pc.all(data).as_py():
        shown = ",".join(names)[:80]
        raise SourceError(f"{path}: needed a header line with the column names, got '{shown}'; add one")
    return names


def _broken(path: Path, error: Exception) -> SourceError:
    cause = str(error).splitlines()[0]
    if "straddling" in cause:
        return SourceError(
            f"{path}: a row is longer than {_BLOCK >> 20} MiB; most likely a double quote is opened and "
            'never closed; close it, or write a quote inside a quoted cell twice ("")'
        )
    return SourceError(f"{path}: cannot be read as CSV: {cause}")


class _Blocks:
    """Blocks of rows of a file.  Leave it before the file is closed.

    Interrupts wait while Arrow is at work: it takes what a handler of malformed rows raises for a fault of the file.
    Arrow reads ahead on a thread of its own, through `_Utf8.read`.  An interpreter that ends under that thread aborts,
    so whoever wants no more makes the file end there and waits until the thread has seen it.
    """

    def __init__(self, file: BinaryIO, last_line: str, on_malformed: Callable[[Any], str]) -> None:
        self._text = _Utf8(file, last_line)
        self._on_malformed = on_malformed
        self._reader: Any = None
        self._busy = threading.Lock()

    def opened(self, converted: Any = None) -> Any:
        """Arrow's reader.  Raises ArrowInvalid."""
        _OPEN.add(self)
        self._text.read_by_arrow = True
        with INTERRUPTS:
            self._reader = pacsv.open_csv(
                self._text,
                read_options=pacsv.ReadOptions(use_threads=False, block_size=_BLOCK),
                parse_options=pacsv.ParseOptions(newlines_in_values=True, invalid_row_handler=self._on_malformed),
                convert_options=converted,
            )
        return self._reader

    def batches(self, converted: Any) -> Iterator[pa.RecordBatch]:
        """All blocks.  Raises ArrowInvalid."""
        self.opened(converted)
        while (batch := self._next()) is not None:
            yield batch

    def _next(self) -> pa.RecordBatch | None:
        with self._busy, INTERRUPTS:
            return next(self._reader, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Read no more, and wait until nobody does; a second at most for one who hangs."""
        if not self._text.read_by_arrow:
            return
        self._text.end()
        if self._reader is not None and self._busy.acquire(timeout=_PATIENCE):
            try:
                with INTERRUPTS:
                    while next(self._reader, None) is not None:
                        pass
            except (pa.ArrowException, *TORN):
                pass  # a row that ends in its middle
            finally:
                self._busy.release()
        self._text.seen.wait(_PATIENCE)
        _OPEN.discard(self)


_OPEN: weakref.WeakSet[_Blocks] = weakref.WeakSet()
"""Those that Arrow may be reading."""


def _end_all() -> None:
    left = list(_OPEN)
    for each in left:
        each.end()
    if left:  # Arrow's thread leaves Python, and lets go of its objects, a little after it has seen the end
        time.sleep(_LETTING_GO)


atexit.register(_end_all)


class _Utf8:
    """A binary file as UTF-8: what is not UTF-8 becomes U+FFFD, and a last line is appended."""

    closed = False

    def __init__(self, file: BinaryIO, last_line: str) -> None:
        self._file = file
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._last_line = f"\n{last_line}\n".encode()
        self._ready = b""
        self._ended = False
        self.read_by_arrow = False
        self.seen = threading.Event()
        """Whether who reads has been told that this is the end."""

    def end(self) -> None:
        """Let the file end here."""
        self._file, self._last_line = io.BytesIO(), b""
        self._ended, self._ready = True, b""

    def close(self) -> None:
        """The file belongs to the caller."""

    def read(self, size: int) -> bytes:
        """At most `size` bytes; a replaced byte takes three, so what is too much waits for the next call."""
        while len(self._ready) < size and not self._ended:
            chunk = self._file.read(size)
            self._ended = len(chunk) < size
            if not chunk.isascii() or self._decoder.getstate()[0]:
                chunk = self._decoder.decode(chunk, self._ended).encode()
            self._ready += chunk + (self._last_line if self._ended else b"")
        given, self._ready = self._ready[:size], self._ready[size:]
        if not given:
            self.seen.set()
        return given
