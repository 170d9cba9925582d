"""A grid of shapes of exact joins, from a source to an Arrow table, beside DuckDB's best, Polars and plain C.

Windows, matches a tuple, types of keys, streams, what is asked for, and where the streams lie: one shape is no proof.
Pairs are asked for in SQL, counts and ranges of `db.join`.  Others have no ranges: they count the pairs that these
stand for.  The C loop (`ranges`) takes times and whole numbers where they lie, and counts.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as parquet

from nile.engine.database import Database
from nile.experiments.benchmarks.exact.peaks import peak_of
from nile.experiments.benchmarks.exact.ranges import CJoin, compiled
from nile.experiments.benchmarks.exact.streams import window_joins
from nile.experiments.benchmarks.harness import Measure, Result, benchmark
from nile.summaries.errors import ConfigError
from nile.summaries.heavy import pa
from nile.summaries.lazy import lazy

__all__ = ["Cell", "cells", "ended", "grid", "peak_here", "plain_count", "stream_table", "ways_of_duckdb"]

duckdb, pl = lazy("duckdb"), lazy("polars")

TITLE = "exact joins on a grid of shapes, from source to Arrow table, beside DuckDB's best formulation, Polars and C"
SECOND = 1_000_000_000
WINDOWS = {"1 s": 1, "1 min": 60, "10 min": 600, "1 h": 3_600, "1 d": 86_400}
MATCHES = (0.0, 0.2, 1.0, 16.0, 480.0)
KINDS = ("int32", "int64 sparse", "float64", "short text", "long text")
ASKED = ("count", "pairs", "ranges")
SOURCES = ("Arrow", "Parquet")
TUPLES, BRIEFLY, MOST_PAIRS = 1_000_000, 200_000, 16_000_000
ROUNDS = 5
EXPONENT = 0.5
PLAIN_C = "C"
HOPELESS = 4.0
_GAP = SECOND // 100  # between tuples of a stream


class Cell(NamedTuple):
    """One shape.  window: seconds; matches: pairs a tuple of the first stream; tuples: of each stream."""

    window: int
    matches: float
    kind: str
    asked: str
    source: str
    tuples: int
    streams: int = 2

    @property
    def within(self) -> float:
        """Tuples of another stream within the window of one, at most."""
        return min(float(self.tuples), 2.0 * self.window * SECOND / _GAP)

    def __str__(self) -> str:
        name = next(name for name, seconds in WINDOWS.items() if seconds == self.window)
        return (
            f"{name}, {self.matches:g} matches, {self.kind} keys, {self.streams} streams of {self.tuples:,}, "
            f"{self.asked}, {self.source}"
        )


def cells(tuples: int = TUPLES) -> Iterator[Cell]:
    """All that can be: a window has to hold as many tuples as match.  Of pairs at most 16 M a cell."""
    for window, matches, kind, asked, source in product(WINDOWS.values(), MATCHES, KINDS, ASKED, SOURCES):
        cell = Cell(window, matches, kind, asked, source, min(tuples, int(MOST_PAIRS / max(1.0, matches))))
        if matches <= cell.within:
            yield cell
            if asked != "ranges" and matches in (0.2, 1.0) and kind == "int32" and window < 3_600:
                yield cell._replace(streams=3)


def _some() -> Iterator[Cell]:
    """A seventeenth of the grid, in which every window, number of matches, type of key and source occurs."""
    for at, cell in enumerate(cells(BRIEFLY)):
        if at % 17 == 0:
            yield cell


@benchmark("grid", TITLE, brief=lambda: replace(_measured(_some(), brief=True), brief=True))
def grid() -> Result:
    """Every cell, wall clock and process CPU, medians of five rounds in which the contestants take turns."""
    return _measured(cells())


def _measured(chosen: Iterator[Cell], *, brief: bool = False) -> Result:
    with TemporaryDirectory() as folder:
        library = compiled(Path(folder))
        rows = [_row(cell, library, weighed=brief or at % 11 == 0) for at, cell in enumerate(chosen)]
    measures = [
        Measure.of(f"{name}, {clock}, over {peer}, the worst cell", [min(ratios)], "times", bar, about=_spread(ratios))
        for name, asked in (("pairs", "pairs"), ("counts", "count"), ("ranges", "ranges"))
        for peer, bar in (("DuckDB", 1.0), ("Polars", 1.0), (PLAIN_C, 1 / 1.3))
        for clock in ("wall", "cpu")
        for ratios in [[one[f"{peer} {clock}"] / one[f"Nile {clock}"] for one in rows if _has(one, asked, peer)]]
        if ratios
    ]
    peaks = [one["DuckDB peak"] / one["Nile peak"] for one in rows if one.get("DuckDB peak") and one.get("Nile peak")]
    if peaks:
        name = "peak memory, over DuckDB, the worst cell"
        measures.append(Measure.of(name, [min(peaks)], "times", 1.0, about=_spread(peaks)))
    return Result(
        name="grid", title=TITLE, unit="cells", work=len(rows), timings=(), measures=tuple(measures),
        notes=(
            f"keys by Zipf {EXPONENT:g}, as many of them as give the matches; tuples of a stream 10 ms apart",
            "DuckDB with all threads, in the fastest of its formulations in that cell (plain, buckets of two or four "
            "windows, one key where keys are numbers), from the same source; Polars where the whole window joins",
            "ranges: Nile's records, in which all pairs are, beside DuckDB's count of the pairs, in the fastest of its "
            "formulations too",
            "C: counts over int32 keys from Arrow, on one thread: the loop of `nile bench run ranges`, which merges "
            "the streams, takes keys as the numbers they are, writes the records of ranges and adds them up; left out "
            "where no compiler is",
            "Parquet: Nile keeps the times and keys of files from the first run on, but for texts with more distinct "
            "ones than half the rows; the run that the peak is of reads them",
            "peak memory: of one run, in a process of its own that has joined 2,000 tuples before, beyond what it held "
            "then; in every tenth cell",
        ),
        rows=tuple(rows),
    )  # fmt: skip


def _has(row: dict[str, Any], asked: str, peer: str) -> bool:
    return row["asked"] == asked and row.get(f"{peer} wall") is not None


def _spread(ratios: list[float]) -> str:
    reached = sum(ratio >= 1.0 for ratio in ratios)
    return f"median {median(ratios):.3g}; {reached} of {len(ratios)} cells at 1 or above"


def _row(cell: Cell, library: Any, *, weighed: bool) -> dict[str, Any]:
    tables = [stream_table(cell, stream) for stream in range(cell.streams)]
    with TemporaryDirectory() as folder, closing(duckdb.connect()) as connection:
        sources: list[Any] = tables
        if cell.source == "Parquet":
            sources = [Path(folder) / f"{name}.parquet" for name in "abc"[: cell.streams]]
            for table, path in zip(tables, sources, strict=True):
                parquet.write_table(table, path)
        ways: dict[str, Callable[[], Any]] = {"Nile": _nile(cell, sources)}
        form, ways["DuckDB"] = _duckdb(cell, connection, sources)
        if cell.source == "Arrow" and cell.streams == 2 and cell.asked != "ranges":
            if cell.window * SECOND >= cell.tuples * _GAP:
                ways["Polars"] = _polars(cell, tables)
            if cell.asked == "count" and cell.kind == "int32" and library is not None:
                ways[PLAIN_C] = partial(plain_count, cell, tables, library)
        rows = {name: _size(run()) for name, run in ways.items()}
        if len(set(rows.values())) > 1:
            raise ConfigError(f"bench grid, {cell}: needed the same answer from all; got {rows}; report this as a bug")
        told = cell._asdict() | {"cell": str(cell), "rows": rows["Nile"], "DuckDB form": form}
        for name, (wall, cpu) in _turns(ways).items():
            told |= {f"{name} wall": wall, f"{name} cpu": cpu}
        for name in ("Nile", "DuckDB") if weighed else ():
            told[f"{name} peak"] = _peak(cell, name, form, [str(source) for source in sources])
        return told


def _peak(cell: Cell, name: str, form: str, paths: list[str]) -> int | None:
    """Bytes at the peak of one run of a contestant, in a process of its own."""
    given = json.dumps({"cell": cell, "name": name, "form": form, "paths": paths if cell.source == "Parquet" else []})
    program = f"from {__name__} import peak_here; print(peak_here({given!r}))"
    run = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=True)
    return None if (told := run.stdout.split()[-1]) == "None" else int(told)


def peak_here(given: str) -> int | None:
    """What `_peak` asks of its process.  given: JSON of the cell, the contestant, DuckDB's form and Parquet files."""
    asked = json.loads(given)
    whole, found = Cell(*asked["cell"]), None
    for cell in (whole._replace(tuples=2_000, source="Arrow"), whole):  # first: compiled code and modules are loaded
        sources: list[Any] = [Path(path) for path in asked["paths"]] if cell.source == "Parquet" else []
        sources = sources or [stream_table(cell, stream) for stream in range(cell.streams)]
        if asked["name"] == "Nile":
            found = peak_of(_nile(cell, sources))
            continue
        with closing(duckdb.connect()) as connection:
            _given(cell, connection, sources)
            ways = ways_of_duckdb(cell)
            found = peak_of(partial(_fetched, connection, ways.get(asked["form"], ways["plain"])))
    return found


def _size(table: Any) -> int:
    """Rows of an answer, the number that a count is, or how many pairs ranges stand for."""
    if "pairs" in table.column_names:
        return int(pa.compute.sum(table["pairs"]).as_py() or 0)
    return int(table.column(0)[0].as_py()) if table.num_columns == 1 else int(table.num_rows)


def _turns(ways: dict[str, Callable[[], Any]]) -> dict[str, tuple[float, float]]:
    spent: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, run in ways.items():
            wall, cpu = time.perf_counter(), time.process_time()
            run()
            spent[name].append((time.perf_counter() - wall, time.process_time() - cpu))
    return {name: (median(w for w, _ in each), median(c for _, c in each)) for name, each in spent.items()}


def stream_table(cell: Cell, stream: int) -> Any:
    """A stream: ts, k, v."""
    rng = np.random.Generator(np.random.PCG64([stream, cell.tuples]))
    keys = _distinct(cell)
    share = np.arange(1, keys + 1) ** -EXPONENT
    below = np.cumsum(share / share.sum())
    drawn = np.random.Generator(np.random.PCG64(5)).permutation(keys)[
        np.minimum(np.searchsorted(below, rng.random(cell.tuples)), keys - 1)
    ]
    if cell.matches == 0.0:
        drawn = 2 * drawn + stream % 2  # the streams have no key in common
    ts = pa.array(np.arange(cell.tuples) * _GAP + rng.integers(0, _GAP, cell.tuples)).view(pa.timestamp("ns"))
    return pa.table({"ts": ts, "k": _typed(drawn, cell.kind), "v": rng.random(cell.tuples)})


def _distinct(cell: Cell) -> int:
    """As many keys as give the matches: the fewest powers of 2 ** (1 / 8) whose self-join is that small."""
    if cell.matches == 0.0:
        return 100_000
    for step in range(8, 200):
        keys = int(2 ** (step / 8))
        share = np.arange(1, keys + 1) ** -EXPONENT
        share /= share.sum()
        if cell.within * float(share @ share) <= cell.matches:
            return keys
    return keys


def _typed(keys: Any, kind: str) -> Any:
    if kind == "int32":
        return pa.array(keys.astype(np.int32))
    if kind == "int64 sparse":
        return pa.array(keys.astype(np.int64) * 0x9E3779B1)
    if kind == "float64":
        return pa.array(keys + 0.25)
    text = pa.array(keys).cast(pa.string())
    if kind == "short text":
        return text
    prefix = pa.scalar("a name as long as those of articles in a warehouse: ")
    return pa.compute.binary_join_element_wise(prefix, text, "")


def _nile(cell: Cell, sources: list[Any]) -> Callable[[], Any]:
    db = Database()
    names = "abc"[: cell.streams]
    for name, source in zip(names, sources, strict=True):
        db.register(name, source, time="ts")
    same = " AND ".join(f"a.k = {name}.k" for name in names[1:])
    if cell.asked == "count":
        query = db.join(*names, on="k", window=cell.window)
        return lambda: pa.table({"n": [int(query.run().estimate.value)]})
    if cell.asked == "ranges":
        ranges = db.join(*names, on="k", window=cell.window).returning("ranges")
        return lambda: ranges.run().to_arrow()
    text = f"SELECT {_columns(cell)} FROM {', '.join(names)} WHERE {same} WINDOW '{cell.window} s'"
    return lambda: db.sql(text).to_arrow()


def _columns(cell: Cell) -> str:
    if cell.asked != "pairs":
        return "count(*) AS n"
    return ", ".join(f"{name}.v AS v_{name}" for name in "abc"[: cell.streams])


def plain_count(cell: Cell, tables: list[Any], library: Any) -> Any:
    """The pairs of two streams with int32 keys, counted by the plain C loop."""
    columns = [table[name].combine_chunks().view(kind).to_numpy() for table in tables
               for name, kind in (("ts", pa.int64()), ("k", pa.int32()))]  # fmt: skip
    keys = 1 + max(int(codes.max()) for codes in columns[1::2])
    join = CJoin(library, columns, keys, cell.window * SECOND)
    counted = join.count()
    join.close()
    return pa.table({"n": [counted]})


def _polars(cell: Cell, tables: list[Any]) -> Callable[[], Any]:
    left, right = (pl.DataFrame(table) for table in tables)

    def run() -> Any:
        found = left.lazy().join(right.lazy(), on="k")
        if cell.asked == "count":
            return found.select(pl.len().alias("n")).collect().to_arrow()
        return found.select(pl.col("v").alias("v_a"), pl.col("v_right").alias("v_b")).collect().to_arrow()

    return run


def _duckdb(cell: Cell, connection: Any, sources: list[Any]) -> tuple[str, Callable[[], Any]]:
    """The fastest formulation in this cell, by a turn of each after one that is not counted, and its run.

    One that has not ended after `HOPELESS` times the fastest so far, and a second, is not waited for: over few keys the
    plain form compares every two tuples of a key, for half a minute where buckets take milliseconds.
    """
    _given(cell, connection, sources)
    ways = {form: partial(_fetched, connection, query) for form, query in ways_of_duckdb(cell).items()}
    best, fastest = float("inf"), ""
    for form in sorted(ways, key=lambda form: form == "plain"):
        for counted in (False, True):
            begin = time.perf_counter()
            if not ended(connection, ways[form], HOPELESS * best + 1.0):
                break
            if counted and time.perf_counter() - begin < best:
                best, fastest = time.perf_counter() - begin, form
    return fastest, ways[fastest]


def ended(connection: Any, run: Callable[[], Any], seconds: float) -> bool:
    """Whether a query of DuckDB's ended within so many seconds; it is broken off there."""
    if seconds == float("inf"):
        run()
        return True
    timer = threading.Timer(seconds, connection.interrupt)
    timer.start()
    try:
        run()
    except duckdb.InterruptException:
        return False
    finally:
        timer.cancel()
        timer.join()
    return True


def _given(cell: Cell, connection: Any, sources: list[Any]) -> None:
    for name, source in zip("abc", sources, strict=False):
        if cell.source == "Parquet":
            connection.execute(f"CREATE VIEW {name} AS SELECT * FROM read_parquet('{source}')")
        else:
            connection.register(name, source)


def _fetched(connection: Any, query: str) -> Any:
    return connection.sql(query).to_arrow_table()


def ways_of_duckdb(cell: Cell) -> dict[str, str]:
    """Formulations of a cell's question, all of which give each pair once: its name and the query."""
    w, select = cell.window * SECOND, _columns(cell)
    at = {name: f"epoch_ns({name}.ts)" for name in "abc"}
    if cell.streams == 3:
        near = " AND ".join(f"{at[x]} - {at[y]} BETWEEN -{w} AND {w}" for x, y in ("ab", "ac", "bc"))
        return {"plain": f"SELECT {select} FROM a, b, c WHERE a.k = b.k AND a.k = c.k AND {near}"}
    inner = "SELECT k, v, epoch_ns(ts) AS t"
    found = window_joins(select, (f"{inner} FROM a", f"{inner} FROM b"), w)
    if w >= cell.tuples * _GAP:  # every two lie within the window
        return {"plain": found["plain"], "keys alone": f"SELECT {select} FROM a JOIN b ON a.k = b.k"}
    if cell.kind == "int32":
        power = (2 * w).bit_length()
        key = "(k::BIGINT << 32)"
        found["buckets, union, one key by shifts"] = (
            f"SELECT {select} FROM (SELECT v, t, {key} | (t >> {power}) AS g FROM ({inner} FROM a)) a JOIN "
            f"(SELECT v, t, {key} | ((t + {w}) >> {power}) AS g FROM ({inner} FROM b) UNION ALL "
            f"SELECT v, t, {key} | ((t - {w}) >> {power}) AS g FROM ({inner} FROM b) "
            f"WHERE (t - {w}) >> {power} <> (t + {w}) >> {power}) b "
            f"ON a.g = b.g AND a.t - b.t BETWEEN -{w} AND {w}"
        )
    return found
