"""Rows as people and programs read them: a table, CSV, JSON lines, Markdown."""

from __future__ import annotations

import base64
import csv
import datetime
import io
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from nile.summaries.heavy import pa
from nile.summaries.heavy import rich_box as box
from nile.summaries.heavy import rich_cells as cells
from nile.summaries.heavy import rich_console as console
from nile.summaries.heavy import rich_markup as markup
from nile.summaries.heavy import rich_table as table

__all__ = ["FORMATS", "cell_text", "first_rows", "has_bytes", "jsonable", "render", "row_count", "with_bytes"]

FORMATS = ("table", "csv", "json", "markdown")

Rows = list[tuple[Any, ...]]
_A_LONG_TEXT = 32  # characters; a time with nanoseconds has 29
_LONGEST_CELL = 200
_LEAST_CELL = 8  # characters of a column that is shown at all
_LEFT_OUT = "\u2026"


def row_count(count: int) -> str:
    """1 row, 2,000 rows."""
    return "1 row" if count == 1 else f"{count:,} rows"


def first_rows(batches: Iterator[pa.RecordBatch], limit: int | None) -> tuple[Rows, bool]:
    """The first `limit` rows as Python values (None: all), and whether there are more.  Reads no batch beyond."""
    rows: Rows = []
    for batch in batches:
        room = batch.num_rows if limit is None else min(batch.num_rows, limit + 1 - len(rows))
        columns = [_values(column) for column in batch.slice(0, room).columns]
        rows += zip(*columns, strict=True) if columns else [()] * room
        if limit is not None and len(rows) > limit:
            return rows[:limit], True
    return rows, False


def render(names: Sequence[str], types: Sequence[str], rows: Rows, form: str, *, width: int = 80) -> str:
    """The rows in one of FORMATS, with a line end.  Only a table looks at `width`, in characters."""
    return _RENDERERS[form](names, types, rows, width)


def cell_text(value: Any) -> str:
    """A value as the shell shows it: NULL for none, 15 significant digits, times in ISO form, no control characters."""
    text = _plain(value)
    if not text.isprintable():
        text = "".join(mark if mark.isprintable() else mark.encode("unicode_escape").decode("ascii") for mark in text)
    return text


def _plain(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, (bytes, bytearray)):
        return "x'" + bytes(value).hex() + "'"
    if isinstance(value, datetime.datetime):
        return value.isoformat(sep=" ")
    return str(value)


def _number(value: float) -> str:
    if math.isnan(value):
        return "nan"
    if value.is_integer() and abs(value) < 1e15:
        return f"{value:.1f}"
    return f"{value:.15g}"


def _values(column: pa.Array) -> list[Any]:
    """Python values; timestamps finer than Python's become text."""
    if pa.types.is_timestamp(column.type) and column.type.unit == "ns":
        return [None if value is None else _nanoseconds(value) for value in column.cast(pa.int64()).to_pylist()]
    return list(column.to_pylist())


def _nanoseconds(value: int) -> str:
    seconds, rest = divmod(value, 1_000_000_000)
    moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=seconds)
    return moment.isoformat(sep=" ") + (f".{rest:09d}".rstrip("0") if rest else "")


@dataclass(frozen=True)
class _Column:
    """What a table shows of a column.  title and value: how wide its name and type, and its cells, want to be."""

    name: str
    kind: str
    texts: list[str]

    @property
    def title(self) -> int:
        return max(cells.cell_len(self.name), cells.cell_len(self.kind))

    @property
    def value(self) -> int:
        return max(map(cells.cell_len, self.texts), default=1)


def _table(names: Sequence[str], types: Sequence[str], rows: Rows, width: int) -> str:
    """Of more columns than can be read at this width the first and the last ones, and a line that says so."""
    width = max(width, 20)
    texts = [[_short(cell_text(row[at])) for row in rows] for at in range(len(names))]
    every = [_Column(cell_text(name), kind, own) for name, kind, own in zip(names, types, texts, strict=True)]
    columns = _those_that_fit(every, width)
    widths = _widths([each.title for each in columns], [each.value for each in columns], width - 3 * len(columns) - 1)
    shown = table.Table(box=box.SQUARE, header_style="", show_edge=True, pad_edge=True)
    for each, own in zip(columns, widths, strict=True):
        title = f"{markup.escape(each.name)}\n[dim]{markup.escape(each.kind)}[/dim]"
        side: Any = "right" if _is_number(each.kind) else "left"
        shown.add_column(title, justify=side, no_wrap=True, overflow="ellipsis", width=own)
    for at in range(len(rows)):
        shown.add_row(*(markup.escape(each.texts[at]) for each in columns))
    out = io.StringIO()
    console.Console(file=out, width=width, color_system=None, legacy_windows=False).print(shown)
    if columns is not every:
        out.write(f"({len(every)} columns, {len(columns) - 1} shown)\n")
    return out.getvalue()


def _those_that_fit(columns: list[_Column], width: int) -> list[_Column]:
    """All, or one from the front and one from the back in turn around a gap, while each has a few characters."""
    least = [min(max(each.title, each.value), _LEAST_CELL) + 3 for each in columns]
    if len(columns) < 3 or sum(least) < width:
        return columns
    room, front, back = width - 5, 0, 0  # the last border, and a gap of a character
    while (took := least[front if front == back else -1 - back]) <= room or front + back < 2:
        room -= took
        front, back = (front + 1, back) if front == back else (front, back + 1)
    gap = _Column(_LEFT_OUT, "", [_LEFT_OUT] * len(columns[0].texts))
    return [*columns[:front], gap, *columns[len(columns) - back :]]


def _widths(titles: Sequence[int], values: Sequence[int], room: int) -> list[int]:
    """How wide each column is.  Where all do not fit, long texts are cut first, then titles, then other values."""
    wanted = [max(both) for both in zip(titles, values, strict=True)]
    most = _widest(wanted, room)
    if sum(values) > room or all(value <= most or value > _A_LONG_TEXT for value in values):
        return [min(own, most) for own in wanted]
    over = [max(0, title - value) for title, value in zip(titles, values, strict=True)]
    spare = room - sum(values)
    most = _widest(over, spare) if spare >= len(over) else 0
    return [value + min(more, most) for value, more in zip(values, over, strict=True)]


def _widest(wanted: Sequence[int], room: int) -> int:
    """The most that a column may take so that all fit: the long ones share what the short ones leave."""
    left = sorted(wanted)
    for at, own in enumerate(left):
        share = room // (len(left) - at)
        if own > share:
            return max(1, share)
        room -= own
    return max(left, default=1)


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_CELL else text[: _LONGEST_CELL - 1] + "\u2026"


def _is_number(kind: str) -> bool:
    return kind.startswith(("int", "uint", "float", "double", "half", "decimal"))


def _csv(names: Sequence[str], _types: Sequence[str], rows: Rows, _width: int) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([["" if value is None else _plain(value) for value in row] for row in rows])
    return out.getvalue()


def _json(names: Sequence[str], _types: Sequence[str], rows: Rows, _width: int) -> str:
    lines = [json.dumps(dict(zip(names, map(jsonable, row), strict=True)), ensure_ascii=False) for row in rows]
    return "".join(line + "\n" for line in lines)


def jsonable(value: Any) -> Any:
    """A value as JSON has it: numbers that it has none of as null, bytes in base64, times as the shell writes them."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, (list, tuple)):
        return [jsonable(each) for each in value]
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, dict):
        return {str(name): jsonable(each) for name, each in value.items()}
    return _plain(value)


def has_bytes(kind: pa.DataType) -> bool:
    """Whether JSON has values of a type in base64: bytes, and lists of them."""
    return bool(pa.types.is_binary(kind) or (pa.types.is_list(kind) and has_bytes(kind.value_type)))


def with_bytes(value: Any) -> Any:
    """A value of such a type, of JSON, with bytes in place of base64.  Raises ValueError."""
    if isinstance(value, list):
        return [with_bytes(each) for each in value]
    return base64.b64decode(value, validate=True) if isinstance(value, str) else value


def _markdown(names: Sequence[str], _types: Sequence[str], rows: Rows, _width: int) -> str:
    lines = [list(map(_bar_free, names)), ["---"] * len(names)]
    lines += [[_bar_free(cell_text(value)) for value in row] for row in rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def _bar_free(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|")


_RENDERERS: dict[str, Callable[[Sequence[str], Sequence[str], Rows, int], str]] = {
    "table": _table,
    "csv": _csv,
    "json": _json,
    "markdown": _markdown,
}
