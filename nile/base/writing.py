"""Answers written to files, batch by batch, atomically."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nile.summaries.errors import ConfigError
from nile.summaries.heavy import pa, pacsv, pads, pq

__all__ = ["FORMS", "form_of", "place_given", "write", "write_parts"]

FORMS = ("parquet", "csv")
_GROUP = 1 << 17
"""Rows that a row group of Parquet has at least, but for the last."""


def form_of(path: str | os.PathLike[str]) -> str:
    """Which of FORMS a file is, by its name.  Raises ConfigError."""
    form = Path(path).suffix.lower().removeprefix(".")
    form = "parquet" if form == "pq" else form
    if form not in FORMS:
        raise ConfigError(f"write '{os.fspath(path)}': needed a name that ends in .parquet or .csv; rename it")
    return form


def place_given(path: Any, *, where: str) -> Path:
    """A path as users give it.  Raises ConfigError for what is none."""
    if not isinstance(path, str | os.PathLike):
        raise ConfigError(f"{where}: needed the path of a file; got {type(path).__name__}; write 'answer.parquet'")
    return Path(path)


def write(batches: Iterable[pa.RecordBatch], schema: pa.Schema, path: str | os.PathLike[str], form: str) -> int:
    """Write the rows as one file, which replaces the one that was there; returns how many there were.

    A batch or a row group is held at a time.  The file appears when it is whole: what raises before leaves the old one.
    Raises ConfigError for a place that cannot be written and columns that have no such form, and what reading raises.
    """
    target = place_given(path, where="write")
    with _appearing(target) as part:
        try:
            writer: Any = pq.ParquetWriter(part, schema) if form == "parquet" else pacsv.CSVWriter(part, schema)
        except pa.ArrowException as error:
            raise _refused(target, error) from None
        with writer:
            return _written(batches, schema, writer.write_table, 1 if form == "csv" else _GROUP, target)


def write_parts(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, path: str | os.PathLike[str], form: str, by: Sequence[str]
) -> int:
    """Write the rows as files in folders called `column=value`, one for each value of each column of `by`.

    The folder must not be there, and appears when it is whole.  Those columns are in the names alone.  Returns how many
    rows there were.  Raises ConfigError as `write` does, and what reading raises.
    """
    target = place_given(path, where="write")
    unknown = [name for name in by if name not in schema.names]
    if unknown or len(set(by)) == len(schema.names):
        got = f"'{unknown[0]}'" if unknown else "all of them"
        raise ConfigError(
            f"write '{target}', PARTITION_BY: needed some of {', '.join(schema.names)}, and others to write; got {got}"
        )
    if target.exists():
        raise ConfigError(f"write '{target}': needed a folder that is not there yet; got one; choose another")
    rows = 0

    def counted() -> Iterator[pa.RecordBatch]:
        nonlocal rows
        for batch in batches:
            rows += batch.num_rows
            yield batch

    with _appearing(target) as part:
        folders = pads.partitioning(pa.schema([schema.field(name) for name in by]), flavor="hive")
        try:
            pads.write_dataset(
                counted(), part, schema=schema, format=form, partitioning=folders,
                basename_template=f"part-{{i}}.{form}",
            )  # fmt: skip
        except pa.ArrowException as error:
            raise _refused(target, error) from None
    return rows


def _written(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, put: Callable[[pa.Table], None], least: int, target: Path
) -> int:
    held: list[pa.RecordBatch] = []
    waiting = rows = 0

    def out() -> None:
        try:
            put(pa.Table.from_batches(held, schema))
        except pa.ArrowException as error:
            raise _refused(target, error) from None

    for batch in batches:
        held.append(batch)
        waiting += batch.num_rows
        rows += batch.num_rows
        if waiting >= least:
            out()
            held, waiting = [], 0
    if held:
        out()
    return rows


def _refused(target: Path, error: Exception) -> ConfigError:
    reason = str(error).splitlines()[0]
    return ConfigError(
        f"write '{target}': needed columns that the file can hold; got {reason}; cast them, or write Parquet"
    )


@contextmanager
def _appearing(target: Path) -> Iterator[Path]:
    """A file beside the target that takes its place when the block ends well, and goes when it does not."""
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        yield part
        part.replace(target)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise ConfigError(
            f"write '{target}': needed a file that can be written; got {reason}; choose another"
        ) from error
    finally:
        if part.is_dir():
            shutil.rmtree(part)
        part.unlink(missing_ok=True)
