"""The rows of the history benchmark: two long streams of retail sales, as a store of Nile and as Parquet for peers.

`python -m nile.experiments.benchmarks.history_data OUT --rows N` makes OUT/store (histories of `store0` and `store1`,
indexed by item_id) and OUT/parquet/store0.parquet, store1.parquet (sorted by time, row groups of 122,880).

The rows are `SyntheticRetail` in pieces of at most a million, 50,000 regular items by
Zipf's law with exponent 1, popular ones anew in each piece; 0.8 % rare items, sold once in store 0 and soon after in
store 1 and never again, so that they alone occur at most 4 times (a regular item comes some 15 times in a million rows
of both streams).  Gaps of 0.2 s in calm and 0.08 s in bursts make about 20,000 tuples per hour, so the last hour holds
some 160 outlier pairs and some 4,000 distinct items a stream.  Streamed: memory does not grow with the rows.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import numpy as np

from nile.base.machine import memory_held, peak_memory
from nile.pyramid.disk.directory import StoreDirectory
from nile.pyramid.history.history import History
from nile.streams.synthetic import SyntheticRetail
from nile.summaries.heavy import pa, pc, pq

__all__ = ["ROW_GROUP", "STREAMS", "Made", "histories", "make", "pieces"]

Array = np.ndarray[Any, Any]

STREAMS = ("store0", "store1")
KEY = "item_id"
PIECE = 1_000_000
BATCH = 65_536
ROW_GROUP = 122_880
COMPRESSION = "snappy"
_RETAIL = SyntheticRetail(items=50_000, skew=1.0, changes=0, vstores=2, calm_gap=0.2, burst_gap=0.08)
_RARE = 125  # tuples for each rare item


@dataclass(frozen=True, slots=True)
class Made:
    """What making took.  rows: of both streams; seconds: of generating, of the store, of Parquet, and of the slowest
    checkpoint; peak_bytes: the most anonymous memory while the store was written, above that before it."""

    rows: int
    generating: float
    store: float
    parquet: float
    checkpoints: tuple[float, ...]
    peak_bytes: int
    store_bytes: int
    parquet_bytes: int


def pieces(rows: int, seed: int = 0) -> Iterator[pa.Table]:
    """`rows` sales of both stores in order of time, at most a million at a time."""
    start, done, number = 0, 0, 0
    while done < rows:
        n = min(PIECE, rows - done)
        retail = replace(_RETAIL, seed=seed + number, tuples=n, rare=n // _RARE)
        table = retail.table().combine_chunks()
        seconds = table["ts"].cast(pa.int64()).combine_chunks()
        shift = start - int(seconds[0].as_py()) if number else 0
        moved = pc.add(seconds, pa.scalar(shift)).cast(pa.timestamp("us"))
        start = int(seconds[-1].as_py()) + shift + 1_000_000
        names = table["item_id"].combine_chunks()
        rare = pc.starts_with(names, "R")
        own = pc.binary_join_element_wise(pa.scalar(f"P{number:03d}"), names, "-")
        table = table.set_column(1, "ts", moved).set_column(6, "item_id", pc.if_else(rare, own, names))
        yield table.set_column(0, "seq", pc.add(table["seq"], pa.scalar(done, pa.int32())))
        done += n
        number += 1


def make(out: Path, rows: int, *, seed: int = 0, memory: int = 80 << 20, checkpoint: int = 5_000_000,
         parquet: bool = True, store: bool = True, progress: Callable[[str], None] | None = None) -> Made:  # fmt: skip
    """Make the store and the Parquet files in the folder `out`.  memory: bytes for each history; checkpoint: rows of
    both streams between two commits."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "parquet").mkdir(exist_ok=True)
    spent = {"generating": 0.0, "store": 0.0, "parquet": 0.0}
    directory = StoreDirectory.open(out / "store") if store else None
    kept: dict[str, History] = {}
    files: dict[str, pq.ParquetWriter] = {}
    waiting: dict[str, list[pa.Table]] = {name: [] for name in STREAMS}
    commits: list[float] = []
    schema = _RETAIL.schema
    for name in STREAMS:
        if directory is not None:
            kept[name] = History(name, schema, directory=directory, indexed=[KEY], memory=memory)
        if parquet:
            files[name] = pq.ParquetWriter(out / "parquet" / f"{name}.parquet", schema, compression=COMPRESSION)
    done = since_commit = 0
    tables = pieces(rows, seed)
    with Peak() as peak:
        while True:
            began = time.perf_counter()
            table = next(tables, None)
            spent["generating"] += time.perf_counter() - began
            if table is None:
                break
            for number, name in enumerate(STREAMS):
                own = table.filter(pc.equal(table["vstore"], number))
                if parquet:
                    began = time.perf_counter()
                    waiting[name] = _written(files[name], [*waiting[name], own], ROW_GROUP)
                    spent["parquet"] += time.perf_counter() - began
                if directory is not None:
                    peak.watch(True)
                    began = time.perf_counter()
                    for batch in own.to_batches(max_chunksize=BATCH):
                        ts = batch.column("ts").cast(pa.timestamp("ns")).cast(pa.int64()).to_numpy()
                        kept[name].append(ts, batch)
                        kept[name].settle()
                    spent["store"] += time.perf_counter() - began
                    peak.watch(False)
            done += len(table)
            since_commit += len(table)
            if directory is not None and (since_commit >= checkpoint or done >= rows):
                since_commit = 0
                began = time.perf_counter()
                _commit(directory, kept)
                commits.append(time.perf_counter() - began)
            if progress is not None:
                progress(f"{done:,} of {rows:,} rows")
    for name, file in files.items():
        _written(file, waiting[name], 1)
        file.close()
    if directory is not None:
        directory.close()
    return Made(
        rows,
        spent["generating"],
        spent["store"] + sum(commits),
        spent["parquet"],
        tuple(commits),
        peak.most,
        _bytes(out / "store"),
        _bytes(out / "parquet"),
    )


def histories(out: Path, memory: int | None = None) -> tuple[dict[str, History], StoreDirectory]:
    """The histories of a store that `make` made, and its directory, which the caller closes."""
    directory = StoreDirectory.open(out / "store", create=False)
    found = {
        name: History.restore(name, _RETAIL.schema, state=state, directory=directory, memory=memory)
        for name, state in directory.state["histories"].items()
    }
    return found, directory


def _commit(directory: StoreDirectory, kept: dict[str, History]) -> None:
    staged = {name: history.stage(directory) for name, history in kept.items()}
    told = {name: {"tuples": history.tuples} for name, history in kept.items()}
    state = {"streams": told, "histories": {name: state for name, (state, _) in staged.items()}}
    directory.commit(state, [file for _, files in staged.values() for file in files])


def _written(file: pq.ParquetWriter, tables: list[pa.Table], least: int) -> list[pa.Table]:
    """Write whole row groups (all rows, when `least` is 1); what is left."""
    table = pa.concat_tables(tables)
    whole = len(table) if least == 1 else len(table) // least * least
    if whole:
        file.write_table(table.slice(0, whole), row_group_size=ROW_GROUP)
    rest = table.slice(whole)
    return [rest.take(pa.array(np.arange(len(rest))))] if len(rest) else []


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) if folder.exists() else 0


def anonymous_bytes() -> int:
    """Anonymous resident memory of this process; on systems that do not tell it the most resident memory so far."""
    held = memory_held("RssAnon")
    return peak_memory() if held is None else held


class Peak:
    """The most anonymous memory of the watched stretches, above what there was when each began; looks every 5 ms."""

    def __init__(self) -> None:
        self.most = 0
        self._base = 0
        self._held = 0
        self._on = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def watch(self, on: bool) -> None:
        """Begin or end a stretch."""
        now = anonymous_bytes()
        if on:
            self._base = now - self._held  # what an earlier stretch kept counts
        else:
            self._held = max(0, now - self._base)
        self._on = on

    def _run(self) -> None:
        while not self._stop.wait(0.005):
            if self._on:
                self.most = max(self.most, anonymous_bytes() - self._base)


@click.command()
@click.argument("out", type=click.Path(path_type=Path, file_okay=False))
@click.option("--rows", type=click.IntRange(1), default=1_000_000, show_default=True, help="of both streams")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--memory", type=click.IntRange(1), default=80, show_default=True, help="MiB for each of the two streams")
@click.option("--checkpoint", type=click.IntRange(1), default=5_000_000, show_default=True, help="rows between commits")
@click.option("--parquet/--no-parquet", default=True)
@click.option("--store/--no-store", default=True)
def main(out: Path, rows: int, seed: int, memory: int, checkpoint: int, parquet: bool, store: bool) -> None:
    """Make the data of the history benchmark in the folder OUT."""
    made = make(out, rows, seed=seed, memory=memory << 20, checkpoint=checkpoint, parquet=parquet, store=store,
                progress=click.echo)  # fmt: skip
    click.echo(f"generating {made.generating:.1f} s, Parquet {made.parquet:.1f} s ({made.parquet_bytes / 1e9:.2f} GB)")
    if store:
        click.echo(
            f"store {made.store:.1f} s ({made.rows / made.store / 1e6:.2f} million rows/s, "
            f"{made.store_bytes / 1e9:.2f} GB), "
            f"of it checkpoints {sum(made.checkpoints):.1f} s (longest {max(made.checkpoints):.2f} s), "
            f"anonymous memory {made.peak_bytes / 2**20:.0f} MiB at most"
        )


if __name__ == "__main__":
    main()
