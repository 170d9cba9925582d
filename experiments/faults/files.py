"""Store files that are made to do harm: valid checksums over wrong numbers, false sizes, packed bombs."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from nile.engine.connect import connect
from nile.experiments.faults.fault import Fault, Wrong
from nile.experiments.faults.forging import forge, forged
from nile.experiments.faults.memory import MB, bounded
from nile.pyramid.disk.directory import StoreDirectory
from nile.pyramid.grid.manager import SummaryManager
from nile.pyramid.grid.manager_state import manager_bytes, read_manager
from nile.pyramid.grid.spec import SummarySpec
from nile.pyramid.history.history import History
from nile.pyramid.history.key_pages import Keys
from nile.summaries.catalogue import CATALOGUE, make_summary, read_summary
from nile.summaries.envelope import unpack
from nile.summaries.errors import NileError
from nile.summaries.heavy import pa

__all__ = ["FAULT"]

_NAME = "forged-files"
_TOUCHED, _CLAIMED = 64 * MB, 1_500 * MB
"""What reading a store of less than a megabyte may touch, and what allocators may reserve meanwhile."""
_STATEMENTS = {
    "counted": "SELECT k, count(*) AS n, sum(n) AS total, max(x) AS top FROM s [RANGE '20 s'] GROUP BY k",
    "joined": "SELECT a.k, a.n, b.n AS m FROM s a, o b WHERE a.k = b.k WINDOW '5 s'",
    "best": "SELECT a.at AS one, b.at AS two FROM s a, o b WHERE a.k = b.k WITH PREFERENCE desc a.k WINDOW '5 s' "
            "BUDGET 0.5",
}  # fmt: skip


def attempt(seed: int) -> None:
    """Forge a file of a store, a history, or a summary's bytes; then use it as if nothing had happened."""
    rng = Random(f"{_NAME} {seed}")
    if seed % 4 == 3:
        _summary(rng)
        return
    template, use = (_database(), _use_database) if seed % 4 < 2 else (_history(), _use_history)
    _warm(template, use)
    with tempfile.TemporaryDirectory(dir=_memory()) as folder:
        root = Path(folder) / "store"
        shutil.copytree(template, root)
        what = forge(root, rng)
        try:
            _guarded(lambda: use(root))
        except Exception as error:
            raise Wrong(f"{what}: {type(error).__name__}: {error}") from error


@cache
def _warm(template: Path, use: Callable[[Path], None]) -> None:
    """Use the good store once: what a first use loads is no memory of an attempt."""
    with tempfile.TemporaryDirectory(dir=_memory()) as folder:
        use(shutil.copytree(template, Path(folder) / "store"))


def control(seed: int) -> None:
    """The same check of readers that believe what is written: an array as long as a header claims."""
    rng = Random(f"{_NAME} control {seed}")

    def credulous() -> None:
        claimed = (200 + rng.randrange(100)) * MB
        np.ones(claimed, np.uint8)

    _guarded(credulous)


def _guarded(use: Callable[[], object]) -> None:
    """Errors that Nile names are as good as success; any other one, and too much memory, is not."""
    with bounded(_TOUCHED, _CLAIMED), warnings.catch_warnings(), contextlib.suppress(NileError):
        warnings.simplefilter("ignore")
        use()


def _summary(rng: Random) -> None:
    """The bytes of a summary or of a summary manager."""
    kinds = sorted(CATALOGUE)
    which = rng.randrange(len(kinds) + 1)
    good = _manager_bytes() if which == len(kinds) else _summary_bytes(kinds[which])
    bad = forged(good, rng)
    keys = np.arange(50, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)

    def use() -> None:
        if which == len(kinds):
            manager = read_manager(unpack(bad))
            manager.ingest(np.arange(10**12, 10**12 + 500, dtype=np.int64), pa.array([f"k{i % 9}" for i in range(500)]))
            manager.estimate(keys)
            manager_bytes(manager)
            return
        summary = read_summary(bad)
        summary.estimate(keys)
        summary.confidence()
        summary.summarize(keys)
        twin = summary.copy()
        twin.add(summary)
        read_summary(twin.to_bytes())

    try:
        _guarded(use)
    except Exception as error:
        raise Wrong(f"{'manager' if which == len(kinds) else kinds[which]}: {type(error).__name__}: {error}") from error


def _use_database(root: Path) -> None:
    with connect(root, memory="16MB", checkpoint=None) as db:
        db.offset("s")
        db.accounting("s").check()
        db.late("s")
        db.quarantine("s")
        db.sql("SELECT * FROM s").to_arrow()
        db.sql("SELECT k, count(*) AS n FROM s GROUP BY k").fetchall()
        for name in db.subscriptions:
            query = db.subscription(name)
            query.accounting  # noqa: B018 - counting may fail
            query.poll()
        db.push("s", _rows(2_000, 2_060), offset=1)
        db.push("o", _others(2_000, 2_060))
        db.summary("items").estimate(np.arange(9, dtype=np.uint64))
        db.advance(3_000.0)
        for name in db.subscriptions:
            db.subscription(name).poll()
        db.checkpoint()


def _use_history(root: Path) -> None:
    with StoreDirectory.open(root) as directory:
        state = json.loads(json.dumps(dict(directory.state))).get("history", {})
        history = History.restore("h", _HISTORY, state=state, directory=directory, memory=30_000)
        for _ in history.batches(["k", "n", "t"]):
            pass
        n = history.tuples
        history.take(np.arange(0, min(n, 4_000), 7), ["k", "t"])
        history.hashes("k", 0, min(n, 4_000))
        for index in history.indices("k"):
            for bucket in range(min(index.buckets, 4)):
                cell = index.cell(bucket)
                cell.positions.sum()
                len(cell.values)
            index.look_up(np.arange(40, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15))
            if index.lists_heavy:
                heavy = index.heavy
                places = np.arange(heavy.hashes.shape[0])
                index.ordinals_at(heavy.begins[places].astype(np.int64))
                heavy.same(places, Keys(heavy.values(places[::-1])), places)
        ts, rows = _history_rows(3_000, 3_300)
        history.append(ts, rows)
        history.settle()
        _, files = history.stage(directory)
        directory.commit({"history": state}, files)


_HISTORY: Any = None


@cache
def _history() -> Path:
    """A store with a history in all tiers: rows and key indices in memory, in files, and in the lake."""
    global _HISTORY
    _HISTORY = pa.schema([("k", pa.string()), ("n", pa.int64()), ("t", pa.timestamp("us"))])
    root = _folder()
    with StoreDirectory.open(root) as directory:
        history = History("h", _HISTORY, directory=directory, indexed=["k"], memory=30_000, segment=256, largest=1_024)
        for begin in range(0, 3_000, 500):
            history.append(*_history_rows(begin, begin + 500))
            history.settle()
            if begin == 1_500:
                history.archive(int(_history_rows(700, 701)[0][0]))
        state, files = history.stage(directory)
        directory.commit({"history": state}, files)
    return root


def _history_rows(begin: int, end: int) -> tuple[np.ndarray[Any, Any], Any]:
    ts = np.arange(begin, end, dtype=np.int64) * 10**9
    keys = [None if i % 17 == 0 else f"key {i * 7919 % 97}" for i in range(begin, end)]
    columns = [pa.array(keys), pa.array(range(begin, end), pa.int64()), pa.array(ts // 1000, pa.timestamp("us"))]
    return ts, pa.RecordBatch.from_arrays(columns, schema=_HISTORY)


@cache
def _database() -> Path:
    """The store of a database with live streams, a summary and standing queries."""
    root = _folder()
    with connect(root, memory="16MB", checkpoint=None) as db:
        db.stream("s", _SALES(), time="at", lateness="10 s", event_id="n")
        db.stream("o", [("at", pa.float64()), ("k", pa.string()), ("n", pa.int64())], time="at")
        db.sql("CREATE SUMMARY items ON s (k) WITH GRANULARITY '30 s' AND COLLAPSE (3, 2)")
        for name, text in _STATEMENTS.items():
            db.subscribe(text, name=name)
        for begin in range(0, 600, 100):
            db.push("s", _rows(begin, begin + 100), offset={"at": begin})
            db.push("o", _others(begin, begin + 100))
            if begin in (200, 400):
                db.subscription("counted").poll()
                db.checkpoint()
    return root


def _SALES() -> Any:  # noqa: N802 - a schema, made once pyarrow is loaded
    return pa.schema([
        ("at", pa.float64()), ("k", pa.string()), ("n", pa.int64()), ("x", pa.float64()), ("b", pa.bool_()),
        ("l", pa.list_(pa.int32())),
    ])  # fmt: skip


def _rows(begin: int, end: int) -> Any:
    span = range(begin, end)
    at = [None if i % 61 == 0 else 0.5 * i + 100 - (40.0 if i % 37 == 0 else i * 13 % 7) for i in span]
    columns = [
        at, [None if i % 31 == 0 else f"item {i * 7919 % 37}" for i in span], [i - i % 2 for i in span],
        [float(i) for i in span], [i % 3 == 0 for i in span], [[i] * (i % 3) for i in span],
    ]  # fmt: skip
    schema = _SALES()
    return pa.RecordBatch.from_arrays(
        [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema
    )


def _others(begin: int, end: int) -> Any:
    span = range(begin, end)
    return {"at": [0.5 * i + 100 for i in span], "k": [f"item {i * 31 % 37}" for i in span], "n": list(span)}


@cache
def _summary_bytes(kind: str) -> bytes:
    options = {"countsketch": {"rows": 3, "columns": 16}, "frequent": {"capacity": 20}, "hll": {"lg_k": 7}}
    made = make_summary(kind, **options.get(kind, {}))
    made.summarize(np.arange(400, dtype=np.uint64) % np.uint64(90) * np.uint64(0x9E3779B97F4A7C15))
    return made.to_bytes()


@cache
def _manager_bytes() -> bytes:
    made = SummaryManager(SummarySpec(granularity=1000, rate=2, depth=2, structure="T4", buckets=2, rows=2, columns=4))
    made.ingest(np.arange(1_200, dtype=np.int64) * 10, pa.array([f"k{i % 7}" for i in range(1_200)]))
    return manager_bytes(made)


def _memory() -> str | None:
    """Where temporary stores go: where whoever runs this says, else into memory where the system has such a place."""
    return "/dev/shm" if "TMPDIR" not in os.environ and os.access("/dev/shm", os.W_OK) else None


def _folder() -> Path:
    folder = tempfile.mkdtemp(prefix="nile-faults-", dir=_memory())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder) / "store"


FAULT = Fault(
    _NAME, "store files with valid checksums and wrong contents; packed bombs", "typed error, memory within a cap",
    attempt, control, full=20_000, small=150,
)  # fmt: skip
