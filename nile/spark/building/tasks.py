"""The tasks of a build: given files and ranges, they read Parquet themselves and write the store's files.

Three kinds of work, each a function of what it is told and of the lake's files:
    rows    consecutive files of rows
    keys    of one column: key indices of consecutive runs, and what summaries need of each slice and key
    counts  of one column: the tuples of some files of the lake, counted by leaf of each summary's pyramids
What goes back is the name, length and digest of each file.  An attempt writes files of its own, so that one that is
retried, or runs twice, harms nothing.  Told and answered in envelopes: no code travels but the name of the function.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nile.pyramid.disk.attempts import Attempt, write_attempt
from nile.pyramid.grid.manager_parts import Leaf, count_by_leaf, counters_for, slices_of
from nile.pyramid.grid.spec import SummarySpec
from nile.pyramid.history.index_store import ROLE as INDEX
from nile.pyramid.history.key_digest import distinct
from nile.pyramid.history.opened import OpenIndex
from nile.pyramid.history.pages import blocks
from nile.pyramid.history.rows_file import rows_file
from nile.pyramid.history.rows_store import ROLE as ROWS
from nile.pyramid.history.zone_file import zone_file
from nile.pyramid.lake.lake import ORDINAL, Part, PartFile
from nile.pyramid.lake.part import pack_parts as pack_lake_parts
from nile.pyramid.lake.part import unpack_parts as unpack_lake_parts
from nile.spark.building.reading import InOrder, Taking
from nile.summaries import columns
from nile.summaries.envelope import pack, pack_parts, unpack
from nile.summaries.hashing import KeyHasher, KeyTable
from nile.summaries.heavy import pa
from nile.summaries.schemas import schema_from_json, schema_to_json

__all__ = ["COUNTS", "DETAILS", "DONE", "TOLD", "Asked", "Done", "Job", "Run", "Work", "detail_of"]

Array = np.ndarray[Any, Any]
DETAILS, COUNTS = "build-keys", "build-counts"
"""Roles of files that only the driver reads, and removes."""
TOLD, DONE = "number int, work binary", "number int, done string"
_KIND = "build work"


@dataclass(frozen=True, slots=True)
class Run:
    """Rows begin..end-1 (ordinals); written: whether they get a file of their own."""

    begin: int
    end: int
    written: bool = True


@dataclass(frozen=True, slots=True)
class Asked:
    """A summary.  since: the first ordinal that it has not seen; leaves: of `counts`, where tuples belong."""

    spec: SummarySpec
    since: int
    leaves: tuple[Leaf, ...] = ()


@dataclass(frozen=True, slots=True)
class Work:
    """What one task is told.  kind: rows, keys or counts; column: of keys and counts; parts: of the lake."""

    kind: str
    parts: tuple[Part, ...]
    runs: tuple[Run, ...] = ()
    column: str = ""
    summaries: tuple[Asked, ...] = ()

    @property
    def rows(self) -> int:
        """Tuples that it works on."""
        if self.kind == "counts":
            return sum(part.rows for part in self.parts)
        return self.runs[-1].end - self.runs[0].begin

    def packed(self) -> bytes:
        """The bytes that `unpacked` reads."""
        listed, arrays = pack_lake_parts(self.parts)
        told = {"kind": self.kind, "parts": listed, "runs": [[run.begin, run.end, run.written] for run in self.runs],
                "column": self.column, "summaries": [asdict(one) for one in self.summaries]}  # fmt: skip
        return pack(_KIND, {}, {"told": np.frombuffer(json.dumps(told).encode(), np.uint8), **arrays})

    @classmethod
    def unpacked(cls, data: bytes) -> Work:
        """What `packed` gave."""
        found = unpack(data, where=_KIND)
        told = json.loads(found.array("told", "|u1", (None,)).tobytes())
        asked = [Asked(SummarySpec(**one["spec"]), one["since"], tuple(Leaf(*leaf) for leaf in one["leaves"]))
                 for one in told["summaries"]]  # fmt: skip
        parts = unpack_lake_parts(told["parts"], found.arrays)
        return cls(told["kind"], tuple(parts), tuple(Run(*run) for run in told["runs"]), told["column"], tuple(asked))


@dataclass(frozen=True, slots=True)
class Done:
    """A file that came of a work.  run: the rows that it is about, None of counts."""

    file: Attempt
    run: Run | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """What all tasks of a build have in common.

    lake: the directory of the stream; store: that of the store, and its epoch; schema: of the stream, plain.
    """

    lake: str
    store: str
    epoch: int
    schema: pa.Schema

    def map(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For `mapInArrow` over TOLD: DONE."""
        for batch in batches:
            for number, work in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
                done = json.dumps([asdict(one) for one in self.do(Work.unpacked(work))])
                yield pa.record_batch({"number": pa.array([number], pa.int32()), "done": [done]})

    def do(self, work: Work) -> list[Done]:
        """Do a work.  Raises StoreCorrupt, StoreWriteError."""
        return list({"rows": self._rows, "keys": self._keys, "counts": self._counts}[work.kind](work))

    def in_order(self, work: Work, names: Sequence[str]) -> Taking:
        """The tuples that a work of kind rows or keys is about."""
        schema = pa.schema([self.schema.field(name) for name in names])
        return InOrder(Path(self.lake), work.parts, schema, work.runs[0].begin, work.runs[-1].end)

    def in_disorder(self, work: Work) -> Iterator[tuple[Array, pa.Array]]:
        """Ordinals (int64 [n]) and keys of the tuples that a work of kind counts is about."""
        for part in work.parts:
            table = PartFile(Path(self.lake) / part.name, part).read([ORDINAL, work.column]).combine_chunks()
            yield table.column(0).to_numpy(), table.column(1)

    def _write(self, role: str, parts: Any) -> Attempt:
        return write_attempt(self.store, self.epoch, role, parts)

    def _rows(self, work: Work) -> Iterator[Done]:
        given = self.in_order(work, self.schema.names)
        for run in work.runs:
            file = rows_file(run.begin, self.schema, given.take(run.end - run.begin))
            yield Done(self._write(ROWS, blocks(file)), run)

    def _keys(self, work: Work) -> Iterator[Done]:
        given = self.in_order(work, [work.column])
        kind = self.schema.field(work.column).type
        for run in work.runs:
            opened = OpenIndex(work.column, kind, run.begin, KeyHasher())
            times = []
            for ts, batch in given.take(run.end - run.begin):
                opened.append(batch.column(0), f"column '{work.column}'")
                times.append(ts)
            ts = np.concatenate(times)
            if run.written:
                index = opened.build(int(ts[0]), int(ts[-1]))
                file = zone_file(work.column, kind, run.begin, index.tuples, index.since, index.until,
                                 [index.part(0, 1, 1)], distinct(index.hashes))  # fmt: skip
                yield Done(self._write(INDEX, blocks(file)), run)
            if any(asked.since < run.end for asked in work.summaries):
                yield Done(self._write(DETAILS, self._details(work, run, ts, opened)), run)

    def _details(self, work: Work, run: Run, ts: Array, opened: OpenIndex) -> Sequence[Any]:
        """What each summary needs of a run: of every slice, and of every key that comes in it."""
        params: dict[str, Any] = {"schemas": []}
        arrays: dict[str, Array] = {}
        codes, keys = opened.codes, opened.keys
        hashes = np.append(keys.hashes(), np.uint64(0))[codes]  # null, -1, is the last
        for number, asked in enumerate(work.summaries):
            begin = max(asked.since, run.begin)
            if begin >= run.end:
                params["schemas"].append(None)
                continue
            new = slice(begin - run.begin, None)
            found = slices_of(asked.spec, begin, ts[new], codes[new], hashes[new])
            chosen, counts = _by_appearance(codes[new], keys.known)
            values = keys.values().take(pa.array(chosen)) if keys.known else pa.nulls(0, opened.kind)
            batch = pa.record_batch([values], names=["key"])
            params["schemas"].append(schema_to_json(batch.schema))
            arrays |= {f"{number}.{name}": array for name, array in found._asdict().items()}
            arrays |= {f"{number}.keys.{name}": array for name, array in columns.encode(batch).items()}
            arrays[f"{number}.counts"] = counts
        return pack_parts(DETAILS, params, arrays)

    def _counts(self, work: Work) -> Iterator[Done]:
        counters = [counters_for(asked.spec, asked.leaves) for asked in work.summaries]
        for ordinals, column in self.in_disorder(work):
            keys = KeyTable()
            codes = keys.encode(column, where=f"column '{work.column}'").codes
            for asked, into in zip(work.summaries, counters, strict=True):
                count_by_leaf(asked.spec, asked.leaves, into, ordinals, codes, keys.hashes())
        arrays = {str(number): array for number, array in enumerate(counters)}
        yield Done(self._write(COUNTS, pack_parts(COUNTS, {}, arrays)))


def detail_of(envelope: Any, number: int) -> tuple[Any, pa.Array, Array] | None:
    """Of a DETAILS file what it says for summary `number`: slices, keys by first appearance, how often each comes."""
    told = envelope.params["schemas"][number]
    if told is None:
        return None
    schema = schema_from_json(told, envelope.where)
    prefix = f"{number}.keys."
    arrays = {name[len(prefix) :]: array for name, array in envelope.arrays.items() if name.startswith(prefix)}
    values = columns.decode(arrays, schema, envelope.where).column(0)
    slices = [envelope.arrays[f"{number}.{name}"] for name in ("sketches", "told", "rest")]
    return slices, values, envelope.arrays[f"{number}.counts"]


def _by_appearance(codes: Array, keys: int) -> tuple[Array, Array]:
    """The codes (of 0..keys-1) among `codes` in the order in which they first come, and how often each does."""
    given = codes[codes >= 0]
    counts = np.bincount(given, minlength=keys)
    first = np.full(keys, given.shape[0], np.int64)
    first[given[::-1]] = np.arange(given.shape[0] - 1, -1, -1)  # of several the last assignment stays
    chosen = np.argsort(first, kind="stable")[: np.count_nonzero(counts)]
    return chosen, counts[chosen]
