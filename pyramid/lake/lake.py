"""The lake: streams as Parquet, cut by time, clustered by key, every tuple with its place in its stream.

    <root>/<stream>/_manifest-0, _manifest-1                 two generations; the newer good one is in force
    <root>/<stream>/day=2011-12-09/part-0000-0fff-17.parquet buckets 0x0000 to 0x0fff, file 17 of the stream
    <root>/<stream>/_aside/3-0.parquet                       rows that batch 3 did not take, with reasons

A time range is a day, or whatever was declared (`from=2011-12-09T08-00-00`).  A file holds consecutive
ordinals of one range (see `nile.pyramid.lake.part`).  What the manifest does not name is not there: files get
their names before the manifest that lists them, and what a crash left over is removed by the next writer.
Tasks of a cluster and a local engine read and write it alike; this module knows nothing of Spark.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nile.pyramid.lake.layout import DAY, MANIFESTS, Layout, directory_of, part_path, range_name, streams_of
from nile.pyramid.lake.part import (
    BUCKET,
    MAX_BITS,
    ORDINAL,
    TS,
    Part,
    PartFile,
    pack_parts,
    unpack_parts,
    unwritten,
    write_part,
)
from nile.summaries.envelope import Envelope, pack, unpack
from nile.summaries.errors import (
    ConfigError,
    EnvelopeError,
    SourceError,
    SourceMissing,
    StoreCorrupt,
    StoreLocked,
)
from nile.summaries.heavy import pa

__all__ = [
    "BUCKET",
    "DAY",
    "ORDINAL",
    "STAGING",
    "TS",
    "Aside",
    "LakeStream",
    "Layout",
    "Part",
    "PartFile",
    "directory_of",
    "part_path",
    "range_name",
    "streams_of",
    "write_part",
]

STAGING = "_staging"
MAX_BUCKET = (1 << MAX_BITS) - 1
_KIND = "lake stream"


@dataclass(frozen=True, slots=True)
class Aside:
    """A file of rows that a batch did not take (reason, row, raw); name: path from the stream's directory."""

    name: str
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class LakeStream:
    """One stream of a lake as one generation of its manifest says; a commit gives the next.

    tuples: how many, and the next ordinal.  until: the latest event time, ns, None while empty.  parts: by
    first ordinal.  batches: one JSON object for each commit, as its writer gave it, with `aside` added.
    recovered: why the newest generation was not the one to open, else None.
    """

    path: Path
    layout: Layout
    generation: int = 0
    tuples: int = 0
    until: int | None = None
    files: int = 0
    parts: tuple[Part, ...] = ()
    batches: tuple[Mapping[str, Any], ...] = ()
    recovered: str | None = None

    @classmethod
    def open(cls, root: str | Path, stream: str) -> LakeStream:
        """The stream as it is now.  Raises SourceMissing (no lake, no such stream), StoreCorrupt, EnvelopeError."""
        path = directory_of(root, stream)
        if not any((path / name).exists() for name in MANIFESTS):
            known = ", ".join(f"'{name}'" for name in streams_of(root)) or "no stream yet: the lake is empty"
            raise SourceMissing(
                f"{root}: needed a lake with the stream '{stream}'; it has {known}; `nile ingest` adds one"
            )
        return cls.at(path)

    @classmethod
    def at(cls, path: Path) -> LakeStream:
        """The stream whose directory this is, which holds a manifest.  Raises StoreCorrupt, EnvelopeError."""
        good, bad = [], []
        for file in (path / name for name in MANIFESTS if (path / name).exists()):
            try:
                good.append(_read_manifest(path, unpack(file.read_bytes(), where=str(file))))
            except (EnvelopeError, OSError) as error:
                bad.append(str(error))
        if not good:
            raise StoreCorrupt("; ".join(bad))
        newest = max(good, key=lambda one: one.generation)
        return newest if not bad else _with(newest, recovered="; ".join(bad))

    @classmethod
    def create(cls, root: str | Path, layout: Layout) -> LakeStream:
        """A stream without tuples, in the lake at `root`, which is made when it is not there.

        One that never got a batch is replaced.  Raises ConfigError when it has some, StoreWriteError.
        """
        path = directory_of(root, layout.stream)
        if Path(root).exists() and not Path(root).is_dir():
            raise SourceError(f"{root}: needed a directory for the lake; it is a file; name another")
        if any((path / name).exists() for name in MANIFESTS) and cls.open(root, layout.stream).generation:
            raise ConfigError(f"{root}: stream '{layout.stream}' is there already; open it, or give another name")
        try:
            path.mkdir(parents=True, exist_ok=True)
            for directory in (path.parent, path.parent.parent):
                _sync_directory(directory)
        except OSError as error:
            raise unwritten(path, error) from None
        stream = cls(path, layout)
        stream._write_manifest()
        return stream

    def select(
        self, since: int | None = None, until: int | None = None, low: int = 0, high: int | None = None
    ) -> list[Part]:
        """The parts that may hold tuples with since <= ts <= until (ns) and a bucket in [low, high]."""
        top = (1 << self.layout.bits) - 1 if high is None else high
        return [
            part
            for part in self.parts
            if (since is None or part.until >= since)
            and (until is None or part.since <= until)
            and part.high >= low
            and part.low <= top
        ]

    def file(self, part: Part) -> PartFile:
        """A part, open for reading.  Raises StoreCorrupt."""
        return PartFile(self.path / part.name, part)

    def read(
        self,
        columns: Sequence[str],
        *,
        since: int | None = None,
        until: int | None = None,
        low: int = 0,
        high: int | None = None,
    ) -> Iterator[pa.Table]:
        """The tuples of a time range (ns, ends inside) and bucket range, a table a part, by (bucket, ordinal).

        columns: the user's, and ORDINAL, TS, BUCKET.  Raises StoreCorrupt, KeyError.
        """
        for part in self.select(since, until, low, high):
            whole = (since is None or part.since >= since) and (until is None or part.until <= until)
            wanted = list(columns) if whole or TS in columns else [*columns, TS]
            table = self.file(part).read(wanted, low, MAX_BUCKET if high is None else high)
            if not whole:
                ts = table.column(TS).to_numpy()
                keep = (ts >= (ts if since is None else since)) & (ts <= (ts if until is None else until))
                table = table.filter(pa.array(keep))
            yield table.select(list(columns))

    @contextmanager
    def writing(self) -> Iterator[LakeStream]:
        """The stream as it is now, with the sole right to write it; what a crash left over is removed.

        Raises StoreLocked while another process holds that right (the lock is the file system's).
        """
        lock = os.open(self.path / "_lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StoreLocked(
                    f"{self.path}: needed the sole right to write the stream '{self.layout.stream}'; another process "
                    "has it; wait for it to end"
                ) from None
            now = LakeStream.open(self.path.parent, self.layout.stream)
            now._sweep()
            try:
                yield now
            except Exception:
                now._clear_staging()  # a full disk needs the room now, not when the next writer comes
                raise
        finally:
            os.close(lock)

    def commit(
        self,
        staged: Iterable[tuple[Path, Part]],
        batch: Mapping[str, Any],
        aside: Iterable[tuple[Path, int]] = (),
    ) -> LakeStream:
        """Adds files and the account of a batch, all or nothing; only inside `writing`.

        staged: files in this stream's directory tree, synced, with their Parts, whose ordinals follow on the
        tuples there.  batch: JSON values.  aside: further files, with their rows.  Returns the stream
        thereafter.  Raises ConfigError (a gap or a repeat in the ordinals), StoreWriteError.
        """
        ready = sorted(staged, key=lambda one: one[1].first)
        _check_order(ready, self)
        parts: list[Part] = []
        asides: list[Aside] = []
        number = self.files
        try:
            touched = {self.path}
            for file, part in ready:
                parts.append(part.named(part_path(part, number, self.layout.range_ns)))
                touched.add(_move(file, self.path / parts[-1].name))
                number += 1
            for place, (file, rows) in enumerate(aside):
                name = f"_aside/{len(self.batches)}-{place}.parquet"
                asides.append(Aside(name, rows, file.stat().st_size))
                touched.add(_move(file, self.path / name))
            for directory in sorted(touched):
                _sync_directory(directory)
        except OSError as error:
            raise unwritten(self.path, error) from None
        told = [{"name": one.name, "rows": one.rows, "bytes": one.bytes} for one in asides]
        after = _with(
            self,
            generation=self.generation + 1,
            tuples=self.tuples + sum(part.rows for part in parts),
            until=max([part.until for part in parts] + ([] if self.until is None else [self.until]), default=None),
            files=number,
            parts=(*self.parts, *parts),
            batches=(*self.batches, {**batch, "aside": told}),
            recovered=None,
        )
        after._write_manifest()
        self._clear_staging()
        return after

    def staging(self) -> Path:
        """A directory for files on their way in, on the lake's file system; only inside `writing`."""
        path = self.path / STAGING
        path.mkdir(exist_ok=True)
        return path

    def verify(self, *, deep: bool = False) -> list[str]:
        """What is wrong with the files, a sentence each; deep: reads every byte (about 1 GB/s)."""
        wrong = []
        for part in self.parts:
            try:
                file = self.file(part)
                if deep:
                    file.verify()
            except StoreCorrupt as error:
                wrong.append(str(error))
        for batch in self.batches:
            for one in batch["aside"]:
                file_path = self.path / one["name"]
                if not file_path.exists() or file_path.stat().st_size != one["bytes"]:
                    wrong.append(
                        f"{file_path}: needed {one['bytes']:,} bytes; it is gone or of another length; copy it back"
                    )
        return wrong

    def _write_manifest(self) -> None:
        listed, arrays = pack_parts(self.parts)
        layout = self.layout
        bulk = json.dumps({"parts": listed, "batches": list(self.batches)}, allow_nan=False).encode()
        params = {
            "stream": layout.stream,
            "time": layout.time,
            "key": layout.key,
            "range_ns": layout.range_ns,
            "bits": layout.bits,
            "group_rows": layout.group_rows,
            "rules": dict(layout.rules),
            "generation": self.generation,
            "tuples": self.tuples,
            "until": self.until,
            "files": self.files,
        }
        schema = np.frombuffer(layout.schema.remove_metadata().serialize(), np.uint8)
        data = pack(_KIND, params, {"schema": schema, "listed": np.frombuffer(bulk, np.uint8), **arrays})
        final = self.path / MANIFESTS[self.generation % 2]
        draft = self.path / "_manifest-draft"
        try:
            with draft.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(final)
            _sync_directory(self.path)
        except OSError as error:
            raise unwritten(final, error) from None

    def _sweep(self) -> None:
        """Removes files that this generation does not name."""
        self._clear_staging()
        named = {part.name for part in self.parts} | {one["name"] for batch in self.batches for one in batch["aside"]}
        for file in (*self.path.glob("*=*/part-*.parquet"), *self.path.glob("_aside/*.parquet")):
            if str(file.relative_to(self.path)) not in named:
                file.unlink(missing_ok=True)

    def _clear_staging(self) -> None:
        shutil.rmtree(self.path / STAGING, ignore_errors=True)


def _read_manifest(path: Path, envelope: Envelope) -> LakeStream:
    if envelope.kind != _KIND:
        envelope.refuse(f"an envelope of kind '{_KIND}'", f"'{envelope.kind}'")
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(envelope.array("schema", "uint8", (None,)).tobytes()))
        bulk = json.loads(envelope.array("listed", "uint8", (None,)).tobytes())
        params = envelope.params
        layout = Layout(
            str(params["stream"]),
            str(params["time"]),
            str(params["key"]),
            schema,
            envelope.integer("range_ns", 1, 2**63 - 1),
            envelope.integer("bits", 1, MAX_BITS),
            envelope.integer("group_rows", 1, 2**31),
            dict(params["rules"]),
        )
        return LakeStream(
            path,
            layout,
            envelope.integer("generation", 0, 2**62),
            envelope.integer("tuples", 0, 2**62),
            None if params["until"] is None else envelope.integer("until", -(2**63), 2**63 - 1),
            envelope.integer("files", 0, 2**62),
            tuple(unpack_parts(bulk["parts"], envelope.arrays)),
            tuple(bulk["batches"]),
        )
    except (KeyError, TypeError, ValueError, pa.ArrowException) as error:
        if isinstance(error, EnvelopeError):
            raise
        envelope.refuse("the manifest of a lake's stream", f"{type(error).__name__}: {error}")


def _with(stream: LakeStream, **changes: Any) -> LakeStream:
    return LakeStream(**({name: getattr(stream, name) for name in LakeStream.__dataclass_fields__} | changes))


def _check_order(ready: Sequence[tuple[Path, Part]], stream: LakeStream) -> None:
    """Parts of one time range may share their ordinals when they split its buckets; together they leave no gap."""
    following, reached = stream.tuples, stream.tuples
    for _, part in ready:
        if part.first < stream.tuples or part.first > reached:
            raise ConfigError(
                f"{stream.path}: needed tuple {reached:,} next; got a part from {part.first:,} on; "
                "write the parts of the whole batch"
            )
        following += part.rows
        reached = max(reached, part.last + 1)
    if following != reached:
        raise ConfigError(
            f"{stream.path}: needed {reached - stream.tuples:,} tuples; got {following - stream.tuples:,}; "
            "write the parts of the whole batch, each once"
        )


def _move(file: Path, final: Path) -> Path:
    final.parent.mkdir(exist_ok=True)
    file.replace(final)
    return final.parent


def _sync_directory(path: Path) -> None:
    directory = os.open(path, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
