"""Cells of columns that the names of folders give (`nile.streams.files.folders`), beside those that files hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nile.expressions.spark_text import quoted
from nile.spark.ingesting.rows import Rows
from nile.spark.sqltypes import read_type
from nile.streams.files.folders import FolderColumns
from nile.summaries.heavy import pa

__all__ = ["stored_columns", "with_folder_cells"]


def stored_columns(folders: FolderColumns, schema: pa.Schema, columns: Sequence[str]) -> list[str]:
    """Those of `columns` that are read from files; one at least, for the rows.  schema: that of the files."""
    return [name for name in columns if name not in folders.texts] or schema.names[:1]


def with_folder_cells(rows: Rows, folders: FolderColumns, stored: Sequence[str], columns: Sequence[str]) -> Rows:
    """The rows of files, read as `stored`, with the cells of `columns`: of several files by `file`."""
    if not folders.texts:
        return rows
    cells = [
        f"cell{stored.index(name)} AS cell{at}"
        if name not in folders.texts
        else f"{_cell(folders, name, rows.text)} AS cell{at}"
        for at, name in enumerate(columns)
    ]
    return replace(rows, frame=rows.frame.selectExpr(*cells, "broken", *rows.arrival))


def _cell(folders: FolderColumns, name: str, text: bool) -> str:
    kind = pa.string() if text else folders.schema.field(name).type
    texts = list(folders.texts[name])
    if pa.types.is_timestamp(kind):  # read as ticks
        texts = folders.values(name).cast(pa.int64()).cast(pa.string()).to_pylist()
    null = "''" if text else "NULL"  # an empty cell is null
    each = [null if one is None else quoted(one) for one in texts]
    found = each[0] if len(each) == 1 else f"element_at(array({', '.join(each)}), file + 1)"
    return f"CAST({found} AS {read_type(kind)})"
