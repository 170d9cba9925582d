"""Lakes to build stores from, the store that one process makes of them, and how two stores differ."""

from __future__ import annotations

import contextlib
import itertools
import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import nile
from nile.durable.keeper import Keeper
from nile.durable.pieces import ROLE, Pieces
from nile.pyramid.disk.directory import StoreDirectory
from nile.pyramid.history import layout, rows_store
from nile.pyramid.history.history import History
from nile.pyramid.lake.lake import DAY, ORDINAL, LakeStream, Layout, streams_of, write_part
from nile.spark.building.tasks import Done, Job, Work
from nile.summaries.envelope import pack
from nile.summaries.errors import StoreWriteError

SCHEMA = pa.schema([("item", pa.string()), ("at", pa.timestamp("ns")), ("price", pa.float64()), ("shop", pa.int32())])
SUMMARY = "CREATE SUMMARY items ON shop (item) WITH GRANULARITY '2 h' AND COLLAPSE (3, 3)"
OTHER = "CREATE SUMMARY shops ON shop (shop) WITH GRANULARITY '5 min' AND COLLAPSE (2, 2)"


@pytest.fixture
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ratios of the real sizes of files, for streams of some ten thousand tuples."""
    for name, rows in (("AHEAD", 1_024), ("SMALL", 1_024), ("LARGE", 4_096)):
        monkeypatch.setattr(rows_store, name, rows)
        if hasattr(layout, name):
            monkeypatch.setattr(layout, name, rows)

    def history(self: Keeper, name: str, schema: pa.Schema) -> History:
        return History(name, schema, directory=self.directory, memory=self.memory, segment=512, largest=8_192)

    monkeypatch.setattr(Keeper, "history", history)


def tuples(seed: int, n: int, days: int = 3) -> tuple[np.ndarray[Any, Any], pa.Table]:
    """Times in order, with ties, and the columns of SCHEMA, with nulls and keys that change."""
    draw = np.random.default_rng(seed)
    ts = np.sort(draw.integers(0, days * DAY, n) // 10**9 * 10**9)
    ids = (draw.zipf(1.3, n) % 300 + (ts // (DAY // 2)) * 40).tolist()
    items = [None if i % 29 == 0 else f"item {i}" for i in ids]
    price = pa.array([None if i % 7 == 0 else i / 4 for i in ids], pa.float64())
    columns = [pa.array(items, pa.string()), pa.array(ts, pa.timestamp("ns")), price, pa.array(ids, pa.int32())]
    return ts, pa.Table.from_arrays(columns, schema=SCHEMA)


def lake_of(root: Path, source: random.Random, ts: np.ndarray[Any, Any], table: pa.Table, batches: int = 1) -> None:
    """These tuples, in some commits, go to the end of a lake, the files of a time range cut by ordinal or bucket."""
    if "shop" not in (streams_of(root) if root.exists() else []):
        LakeStream.create(root, Layout("shop", "at", "item", SCHEMA, group_rows=source.choice((100, 1_000))))
    stream = LakeStream.open(root, "shop")
    cuts = [0, *sorted(source.sample(range(1, len(ts)), min(batches, len(ts)) - 1)), len(ts)]
    for begin, end in itertools.pairwise(cuts):
        with stream.writing() as now:
            staged = []
            for day in np.unique(ts[begin:end] // DAY):
                inside = begin + np.flatnonzero(ts[begin:end] // DAY == day)
                pieces = np.array_split(inside, source.randrange(1, 4))
                for piece in pieces:
                    for rows in _by_bucket(piece, source):
                        path = now.staging() / f"{len(staged)}.parquet"
                        part = write_part(path, now.tuples + rows - begin, ts[rows], table.take(pa.array(rows)), "item",
                                          group_rows=now.layout.group_rows)  # fmt: skip
                        staged.append((path, part))
            stream = now.commit(staged, {"id": f"b{now.tuples}"})


def _by_bucket(rows: np.ndarray[Any, Any], source: random.Random) -> Iterator[np.ndarray[Any, Any]]:
    """The rows, or two halves of them that share a range of ordinals, as files of different buckets do."""
    if source.random() < 0.6 or len(rows) < 3:
        if len(rows):
            yield rows
        return
    odd = source.sample(range(len(rows)), len(rows) // 2)
    yield rows[np.sort(odd)]
    yield np.delete(rows, odd)


def pushed(store: Path, lake: Path, summaries: Sequence[str]) -> None:
    """The oracle: one process, a push of all tuples in order."""
    stream = LakeStream.open(lake, "shop")
    table = pa.concat_tables(stream.read([ORDINAL, *SCHEMA.names]))
    table = table.sort_by(ORDINAL).drop_columns([ORDINAL])
    batches = stream.batches
    offset = {"lake": "shop", "tuples": len(table), "batches": len(batches), "last": batches[-1]["id"]}
    db = nile.connect(store, checkpoint=None)
    db.stream("shop", SCHEMA, time="at")
    db._live.get("shop").history.index("item")  # type: ignore[union-attr]
    db.push("shop", table, offset=offset)
    for statement in summaries:
        db.sql(statement)
    db.close()


def content(store: Path) -> dict[str, Any]:
    """All that a store holds, names of files replaced by their bytes; arrays in pieces as if they had stood in one.

    Which checkpoint wrote a piece is no part of what it holds.
    """
    with StoreDirectory.open(store, read_only=True) as directory:
        state = json.loads(json.dumps(dict(directory.state)))
        files, pieces = directory.files(), Pieces(directory)
        pieces.opened([files[name] for name in state.pop("pieces", [])])
        data = {name: bytes(directory.read(file)) for name, file in files.items() if file.role != ROLE}
        for name, file in files.items():
            if file.role.startswith("state-") and file.role != ROLE:
                whole = pieces.whole(directory.read_envelope(file))
                data[name] = pack(whole.kind, whole.params, whole.arrays)
        roles = sorted(file.role for file in files.values() if file.role != ROLE)

    def told(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: told(one) for key, one in value.items()}
        if isinstance(value, list):
            return [told(one) for one in value]
        return data.get(value, value) if isinstance(value, str) else value

    return {"state": told(state), "roles": roles}


def difference(one: Any, other: Any, where: str = "store") -> str | None:
    """Where two contents first differ, in words."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        pairs = [(one[key], other[key], f"{where}.{key}") for key in one]
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = [(a, b, f"{where}[{at}]") for at, (a, b) in enumerate(zip(one, other, strict=True))]
    elif isinstance(one, bytes) and isinstance(other, bytes) and one != other:
        at = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
        return f"{where}: {len(one)} and {len(other)} bytes, from {at} on"
    else:
        return None if one == other else f"{where}: {str(one)[:200]} and {str(other)[:200]}"
    return next((found for a, b, at in pairs if (found := difference(a, b, at)) is not None), None)


def in_disorder(source: random.Random, fail: float = 0.0) -> Any:
    """A runner that does works in any order, some of them twice, and some after attempts that died."""

    def run(_: str, job: Job, works: Sequence[Work]) -> list[list[Done]]:
        done: list[list[Done]] = [[] for _ in works]
        for at in source.sample(range(len(works)), len(works)):
            work = Work.unpacked(works[at].packed())
            while source.random() < fail:
                if source.random() < 0.5:
                    job.do(work)  # a twin that was slower
                else:
                    with pytest.raises(StoreWriteError, match="lost"), _lost_disk():
                        job.do(work)
            done[at] = job.do(work)
        return done

    return run


@contextlib.contextmanager
def _lost_disk() -> Iterator[None]:
    """Inside, nothing can be written."""

    def write(*_: object) -> int:
        raise OSError(5, "lost")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.write", write)
        yield


def in_turn(_: str, job: Job, works: Sequence[Work]) -> list[list[Done]]:
    """A runner that does one work after the other."""
    return [job.do(work) for work in works]
