"""A store larger than memory asked for what is preferred, beside DuckDB asked for everything.

The rows are those of `history_data`: two streams of retail sales, as a store of Nile and as Parquet sorted by time.

    outliers  the first 100 pairs of the last hour of store0 with all of store1 whose item occurs at most 4 times in
              both streams together, each of them certain; DuckDB: all such pairs
    ranges    of each tuple of the last hour of store0 its matches in all of store1, the most first, until 90 % of them
              are certain to have been reported; DuckDB: the number of matches of each tuple

Both are asked in SQL, from the text to the last row that was waited for.  DuckDB gets every formulation below, on two
threads, and the fastest counts.  Cold: the page cache of all files is dropped, and both open their files anew before
the clock starts.
"""

from __future__ import annotations

import ctypes
import gc
import mmap
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from nile.answers.progress import Progress
from nile.execution.options import Options
from nile.execution.registry import Registry
from nile.execution.statement.statements import run_statement
from nile.experiments.benchmarks.harness import Measure, Result, Timing, benchmark
from nile.experiments.benchmarks.history_data import STREAMS, Peak, histories, make
from nile.sql.reading_statements import read_statement
from nile.streams.live import LiveStream
from nile.summaries.errors import ConfigError
from nile.summaries.heavy import duckdb

if TYPE_CHECKING:
    from nile.pyramid.disk.directory import StoreDirectory

__all__ = ["BAR", "FORMULATIONS", "ROWS", "Peer", "Store", "ask_for", "asked", "history", "measure"]

TITLE = "outliers and ranges of the last hour against all history, preferred first, against DuckDB's full answers"
ROWS = 1_000_000
BAR_AT = 50_000_000  # tuples: of fewer, DuckDB's full answer takes hardly longer than a first look at anything
BAR = 0.02
ROUNDS = 5
FIRST = 100
SHARE = 0.9
CAP = 4
_HOUR = 3_600
_MAY_STAY = 1 << 20
"""Bytes of files that may stay in the page cache where it is called cold."""

OUTLIERS = (
    "SELECT a.item_id, a.seq, b.seq AS other FROM store0 a, store1 b WHERE a.item_id = b.item_id AND a.ts >= ? "
    "WITH PREFERENCE asc a.item_id"
)
RANGES = "SELECT a.seq FROM store0 a, store1 b WHERE a.item_id = b.item_id AND a.ts >= ? WITH PREFERENCE desc a.item_id"

FORMULATIONS = {
    "outliers": {
        "both streams counted with a semi-join": """
            WITH h AS MATERIALIZED (SELECT item_id, seq FROM store0 WHERE ts >= $since),
            k AS MATERIALIZED (SELECT DISTINCT item_id FROM h),
            n AS (SELECT item_id FROM (SELECT item_id FROM store0 UNION ALL SELECT item_id FROM store1)
                  WHERE item_id IN (SELECT item_id FROM k) GROUP BY item_id HAVING count(*) <= 4)
            SELECT h.item_id, h.seq, b.seq FROM h JOIN n USING (item_id) JOIN store1 b USING (item_id)""",
        "each stream counted, the rare ones joined": """
            WITH h AS MATERIALIZED (SELECT item_id, seq FROM store0 WHERE ts >= $since),
            k AS MATERIALIZED (SELECT DISTINCT item_id FROM h),
            b AS MATERIALIZED (SELECT item_id, count(*) AS n, list(seq)[:4] AS seqs FROM store1
                               SEMI JOIN k USING (item_id) GROUP BY item_id HAVING count(*) < 4),
            a AS MATERIALIZED (SELECT item_id, count(*) AS n FROM store0 SEMI JOIN b USING (item_id) GROUP BY item_id)
            SELECT h.item_id, h.seq, unnest(b.seqs) FROM h JOIN b USING (item_id) JOIN a USING (item_id)
            WHERE a.n + b.n <= 4""",
        "everything counted first": """
            WITH u AS (SELECT item_id FROM store0 UNION ALL SELECT item_id FROM store1),
            n AS MATERIALIZED (SELECT item_id FROM u GROUP BY item_id HAVING count(*) <= 4)
            SELECT h.item_id, h.seq, b.seq FROM store0 h JOIN n USING (item_id) JOIN store1 b USING (item_id)
            WHERE h.ts >= $since""",
    },
    "ranges": {
        "counted with a semi-join": """
            WITH h AS MATERIALIZED (SELECT item_id, seq FROM store0 WHERE ts >= $since),
            k AS MATERIALIZED (SELECT DISTINCT item_id FROM h),
            n AS (SELECT item_id, count(*) AS n FROM store1 WHERE item_id IN (SELECT item_id FROM k) GROUP BY item_id)
            SELECT h.seq, n.n FROM h JOIN n USING (item_id)""",
        "everything counted first": """
            WITH n AS (SELECT item_id, count(*) AS n FROM store1 GROUP BY item_id)
            SELECT h.seq, n.n FROM store0 h JOIN n USING (item_id) WHERE h.ts >= $since""",
        "joined, then counted": """
            SELECT h.seq, count(*) FROM store0 h JOIN store1 b USING (item_id) WHERE h.ts >= $since GROUP BY h.seq""",
        "the hour grouped, joined, then counted": """
            WITH h AS MATERIALIZED (SELECT item_id, list(seq) AS seqs FROM store0 WHERE ts >= $since GROUP BY item_id),
            n AS (SELECT h.item_id, count(*) AS n FROM h JOIN store1 USING (item_id) GROUP BY h.item_id)
            SELECT unnest(h.seqs), n.n FROM h JOIN n USING (item_id)""",
    },
}
"""DuckDB's ways to each full answer."""

_LITERALS = {
    "outliers": """
        WITH h AS MATERIALIZED (SELECT item_id, seq FROM store0 WHERE ts >= $since),
        n AS (SELECT item_id FROM (SELECT item_id FROM store0 UNION ALL SELECT item_id FROM store1)
              WHERE item_id IN (@) GROUP BY item_id HAVING count(*) <= 4)
        SELECT h.item_id, h.seq, b.seq FROM h JOIN n USING (item_id) JOIN store1 b USING (item_id)""",
    "ranges": """
        WITH h AS MATERIALIZED (SELECT item_id, seq FROM store0 WHERE ts >= $since),
        n AS (SELECT item_id, count(*) AS n FROM store1 WHERE item_id IN (@) GROUP BY item_id)
        SELECT h.seq, n.n FROM h JOIN n USING (item_id)""",
}
"""A further one: the hour's keys, asked for first, in the text as a list of literals."""


class Store:
    """The store of `history_data`, opened: its streams by name, as a database knows them.  Close it."""

    def __init__(self, data: Path) -> None:
        self._directory: StoreDirectory
        self.held, self._directory = histories(data)
        self.names = Registry()
        for name, kept in self.held.items():
            stream = LiveStream(name, kept.schema, "ts", history=kept)
            self.names.register(name, stream, time="ts", where=None, lateness=None)

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.held.clear()
        self.names = Registry()  # whoever still has the store keeps none of its files mapped
        self._directory.close()

    @property
    def tuples(self) -> int:
        """Of both streams."""
        return sum(kept.tuples for kept in self.held.values())

    @property
    def since(self) -> Any:
        """The last hour's begin: numpy datetime64[us]."""
        first = self.held[STREAMS[0]]
        return np.datetime64(int(first.ts(np.array([first.tuples - 1]))[0]) // 1_000, "us") - np.timedelta64(_HOUR, "s")

    def ask(self, text: str, since: Any, **options: Any) -> Progress:
        """What `db.sql(text, [since], **options).progress(every=0)` is."""
        statement = read_statement(text, self.names, params=[since.item()])
        return run_statement(self.names, statement, Options.of(options)).progress(every=0)


@dataclass(slots=True)
class Asked:
    """What a query gave.  rows: outlier pairs, or matches that the records stand for; told: its EXPLAIN ANALYZE."""

    rows: int = 0
    seconds: float = 0.0
    pairs: list[Any] = field(default_factory=list)
    told: str = ""


def asked(store: Store, kind: str, since: Any, *, whole: bool = False) -> Asked:
    """Run a query until there is enough (whole: to its end)."""
    made = Asked()
    began = time.perf_counter()
    progress = store.ask(OUTLIERS, since, outlier_cap=CAP) if kind == "outliers" else store.ask(
        RANGES, since, output="ranges")  # fmt: skip
    with progress:
        for partial in progress:
            made.pairs += partial.rows
            made.rows = len(partial) if kind == "outliers" else int(partial.estimate.low)
            if not whole and (made.rows >= FIRST if kind == "outliers" else partial.coverage >= SHARE):
                break
    made.seconds = time.perf_counter() - began
    made.told = progress.explain()
    return made


class Peer:
    """DuckDB over the Parquet files, on two threads."""

    def __init__(self, data: Path) -> None:
        self.connection = duckdb.connect(config={"threads": 2})
        for name in STREAMS:
            path = str(data / "parquet" / f"{name}.parquet").replace("'", "''")
            self.connection.execute(f"CREATE VIEW {name} AS SELECT * FROM read_parquet('{path}')")

    def run(self, kind: str, way: str, since: Any) -> list[Any]:
        """All rows of the full answer."""
        text = FORMULATIONS[kind].get(way)
        if text is None:
            keys = self.connection.execute(
                "SELECT DISTINCT item_id FROM store0 WHERE ts >= $since", {"since": since.item()}
            ).fetchall()
            text = _LITERALS[kind].replace("@", ", ".join("'" + key.replace("'", "''") + "'" for (key,) in keys))
        rows: list[Any] = self.connection.execute(text, {"since": since.item()}).fetchall()
        return rows

    def close(self) -> None:
        """Let go of its files."""
        self.connection.close()


def drop_cache(folder: Path) -> int:
    """Write what is dirty and drop the page cache of all files below a folder; how many of those bytes stayed in it.

    The system keeps what anybody maps.  Where it does not tell what it keeps, nothing is said to have stayed.
    """
    stayed = 0
    for directory, _, names in os.walk(folder, followlinks=True):
        for name in names:
            handle = os.open(Path(directory) / name, os.O_RDONLY)
            try:
                os.fsync(handle)
                os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
                stayed += _cached(handle)
            finally:
                os.close(handle)
    return stayed


def _cached(handle: int) -> int:
    """Bytes of a file that are in the page cache; 0 where the system does not tell."""
    look = getattr(ctypes.CDLL(None), "mincore", None)
    if look is None or not os.fstat(handle).st_size:
        return 0
    mapped = np.frombuffer(mmap.mmap(handle, 0, access=mmap.ACCESS_READ), np.uint8)
    told = np.zeros(-(-mapped.shape[0] // mmap.PAGESIZE), np.uint8)
    if look(ctypes.c_void_p(mapped.ctypes.data), ctypes.c_size_t(mapped.shape[0]), ctypes.c_void_p(told.ctypes.data)):
        return 0
    return int((told & 1).sum()) * mmap.PAGESIZE


def measure(data: Path, rounds: int = ROUNDS) -> tuple[list[Measure], dict[str, Any], list[Timing], list[str]]:
    """(ratios with their bars, figures, timings, notes) of a folder that `history_data` filled.

    Raises ConfigError where the two do not give the same answer.
    """
    figures: dict[str, Any] = {}
    notes: list[str] = []
    with Peak() as peak:
        with Store(data) as store:
            since = store.since
            tuples = store.tuples
            for kind in FORMULATIONS:
                asked(store, kind, since)  # compiles and loads what a started engine has loaded
        peak.watch(True)
        with Store(data) as store:
            for kind in FORMULATIONS:
                asked(store, kind, since)
                full = asked(store, kind, since, whole=True)
                figures[f"{kind}, full answer of Nile"] = f"{full.seconds * 1e3:.1f} ms"
        peak.watch(False)
    figures["anonymous memory of the queries, store opened, above the engine"] = f"{peak.most / 2**20:.0f} MiB"
    measures, timings = [], []
    for kind in FORMULATIONS:
        with Store(data) as store:
            ours = asked(store, kind, since, whole=True)
        ways = _ways(data, kind, since, ours.rows)
        best = min(ways, key=lambda way: ways[way])
        what = "pairs" if kind == "outliers" else "matches"
        told = ", ".join(f"{way} {ways[way] * 1e3:.0f} ms" for way in sorted(ways, key=lambda way: ways[way]))
        notes.append(f"{kind}: {ours.rows:,} {what}; DuckDB's ways: {told}")
        for cache in ("warm", "cold"):
            mine, others, told = _rounds(data, kind, best, since, cache, rounds)
            ratios = [a / b for a, b in zip(mine, others, strict=True)]
            about = f"{median(mine) * 1e3:.1f} ms, DuckDB {median(others) * 1e3:.0f} ms"
            about += "" if tuples >= BAR_AT else f"; the bar is one of {BAR_AT:,} tuples"
            measures.append(
                Measure.of(
                    f"{kind}, {cache}: time over that of DuckDB's full answer", ratios, "", BAR, most=True, about=about
                )
            )
            for name, seconds in (("nile", mine), ("duckdb", others)):
                middle = median(seconds)
                each = middle / tuples * 1e9
                timings.append(Timing(f"{name}, {kind}, {cache}", 1, tuple(seconds), middle, each, tuples / middle))
            if cache == "warm":
                notes += [f"{kind}: {line.strip()}" for line in told.split("\n")]
    return measures, figures, timings, notes


def _ways(data: Path, kind: str, since: Any, expected: int) -> dict[str, float]:
    """Seconds of each of DuckDB's ways, with all it needs in memory, each checked to give as much as Nile did."""
    peer = Peer(data)
    ways: dict[str, float] = {}
    for way in (*FORMULATIONS[kind], "the hour's keys as literals"):
        peer.run(kind, way, since)
        began = time.perf_counter()
        answer = peer.run(kind, way, since)
        ways[way] = time.perf_counter() - began
        theirs = len(answer) if kind == "outliers" else sum(n for _, n in answer)
        if theirs != expected:
            raise ConfigError(
                f"bench history, {kind}: needed the same answer of both; got {expected:,} of Nile and {theirs:,} of "
                f"DuckDB ({way}); report this as a bug"
            )
    peer.close()
    return ways


def _rounds(
    data: Path, kind: str, way: str, since: Any, cache: str, rounds: int
) -> tuple[list[float], list[float], str]:
    """Seconds of both, taking turns."""
    mine, others, told = [], [], ""
    with _opened(data) as (store, peer):
        for turn in range(rounds + 1):
            if cache == "cold":
                peer.pop().close()
                store.pop().__exit__()
                gc.collect()  # what was open before is let go of outside the time, and with it what it maps
                if (stayed := drop_cache(data)) > _MAY_STAY:
                    raise ConfigError(
                        f"bench history: needed files that nobody has open, so that they can be read cold; got "
                        f"{stayed >> 20} MiB that stay in memory; end what reads {data}"
                    )
                store.append(Store(data))
                peer.append(Peer(data))
            ours = asked(store[0], kind, since)
            told = ours.told
            began = time.perf_counter()
            peer[0].run(kind, way, since)
            theirs = time.perf_counter() - began
            if turn or cache == "cold":  # a warm cache is filled first
                mine.append(ours.seconds)
                others.append(theirs)
    return mine[:rounds], others[:rounds], told


@contextmanager
def _opened(data: Path) -> Iterator[tuple[list[Store], list[Peer]]]:
    store, peer = [Store(data)], [Peer(data)]
    try:
        yield store, peer
    finally:  # between two rounds there may be none
        for ours in store:
            ours.__exit__()
        for theirs in peer:
            theirs.close()


def result_of(data: Path, rounds: int = ROUNDS) -> Result:
    """The benchmark over a folder."""
    with Store(data) as store:
        tuples = store.tuples
    measures, figures, timings, notes = measure(data, rounds)
    return Result("history", TITLE, "tuples kept", tuples, tuple(timings), tuple(measures), tuple(notes), figures)


_ASKED: dict[str, Any] = {"rows": ROWS, "data": None}


def ask_for(*, rows: int | None = None, data: Path | None = None) -> None:
    """What the benchmark is to be run over: so many rows of both streams, or a folder that `history_data` filled."""
    _ASKED.update({"rows": rows or ROWS, "data": data})


@benchmark("history", TITLE)
def history() -> Result:
    """A million rows made for it, or what was asked for."""
    if _ASKED["data"] is not None:
        return result_of(_ASKED["data"])
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder), _ASKED["rows"])
        return result_of(Path(folder))
