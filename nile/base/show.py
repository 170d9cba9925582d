"""Rows as people and programs read them: a table, CSV, JSON lines, Markdown."""

from __future__ import annotations

import csv
import datetime
import io
import json
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from nile.summaries.heavy import pa
from nile.summaries.heavy import rich_box as box
from nile.summaries.heavy import rich_cells as cells
from nile.summaries.heavy import rich_console as console
from nile.summaries.heavy import rich_markup as markup
from nile.summaries.heavy import rich_table as table

__all__ = ["FORMATS", "cell_text", "first_rows", "jsonable", "render"]

FORMATS = ("table", "csv", "json", "markdown")

Rows = list[tuple[Any, ...]]
_A_LONG_TEXT = 32  # characters; a time with nanoseconds has 29
_LONGEST_CELL = 200


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


def _table(names: Sequence[str], types: Sequence[str], rows: Rows, width: int) -> str:
    shown = table.Table(box=box.SQUARE, header_style="", show_edge=True, pad_edge=True)
    texts = [[_short(cell_text(value)) for value in row] for row in rows]
    heads = [[cell_text(name), kind] for name, kind in zip(names, types, strict=True)]
    titles = [max(map(cells.cell_len, head)) for head in heads]
    values = [max(map(cells.cell_len, column)) for column in zip(*texts, strict=True)] if texts else [1] * len(heads)
    widths = _widths(titles, values, max(width, 20) - 3 * len(heads) - 1)
    for (name, kind), own in zip(heads, widths, strict=True):
        title = f"{markup.escape(name)}\n[dim]{markup.escape(kind)}[/dim]"
        shown.add_column(
            title, justify="right" if _is_number(kind) else "left", no_wrap=True, overflow="ellipsis", width=own
        )
    for row in texts:
        shown.add_row(*map(markup.escape, row))
    out = io.StringIO()
    console.Console(file=out, width=max(width, 20), color_system=None, legacy_windows=False).print(shown)
    return out.getvalue()


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
    """A value as JSON has it: numbers that it has none of as null, times and bytes as the shell writes them."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, (list, tuple)):
        return [jsonable(each) for each in value]
    if isinstance(value, dict):
        return {str(name): jsonable(each) for name, each in value.items()}
    return _plain(value)


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
