"""A summary manager's byte form: what it knows, not how it is laid out, so that equal streams give equal bytes.

Kept: the spec, the distinct keys in the order of their codes, the tuples per query can still reach, how many tuples
each key ever had, and every counter of grid, pyramids and change detector.  Not kept: what follows from these
(hashes, tuple lists, room to grow).
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from nile.pyramid.grid import arrays as ga
from nile.pyramid.grid.cells import CellManager
from nile.pyramid.grid.manager import SummaryManager
from nile.pyramid.grid.spec import SummarySpec
from nile.pyramid.grid.store import PIECE, TupleStore
from nile.summaries import columns
from nile.summaries.catalogue import read_summary
from nile.summaries.envelope import Envelope, pack
from nile.summaries.errors import NileError
from nile.summaries.hashing import KeyHasher, KeyTable
from nile.summaries.heavy import pa
from nile.summaries.schemas import schema_from_json, schema_to_json
from nile.summaries.summary import Summary

__all__ = ["KIND", "manager_bytes", "manager_content", "read_manager"]

Array = np.ndarray[Any, Any]
KIND = "summary manager"


def manager_bytes(manager: SummaryManager) -> bytes:
    """The byte form of a manager; equal however the stream was cut into batches.

    Cost: one copy of the counters and of the tuples held, one BLAKE2b pass.
    """
    return pack(KIND, *manager_content(manager))


def manager_content(manager: SummaryManager) -> tuple[dict[str, Any], dict[str, Array]]:
    """What an envelope of kind KIND holds of a manager: (params, arrays).  Arrays may be views of its own."""
    store, keys = manager.store, manager.keys
    side = store.side
    base = int(side.meta[ga.BASE])
    keep = max(int(side.meta[ga.KEEP_FROM]), base)
    kept = slice(keep - base, store.tuples - base)
    zone = side.zone.copy()
    zone[ga.TURNING] = 0  # work space of a batch
    values = pa.RecordBatch.from_arrays([keys.values()], names=["key"]) if keys.kind is not None else None
    cells = sorted(manager.cells.items()) if isinstance(manager, CellManager) else []
    return (
        {
            **({"cells": [start for start, _ in cells]} if isinstance(manager, CellManager) else {}),
            "spec": asdict(manager.spec),
            "keep": keep,
            "tuples": store.tuples,
            "schema": None if values is None else schema_to_json(values.schema),
            "known": keys.known,
            "keyed": bool(keys.hasher.secret),
            "seed": keys.hasher.seed,
        },
        {
            "ts": side.ts[kept],
            "code": side.code[kept],
            "appended": (side.lists[:, ga.HELD] + side.lists[:, ga.GONE])[: keys.known],
            "counters": side.counters,
            "node": side.node,
            "ring": side.gran[:, [ga.HEAD, ga.SIZE]],
            "zone": zone,
            "detector": side.detector,
            "recent": side.recent,
            "moments": side.moments,
            **({"cell": _bytes_of(manager.cell)} if isinstance(manager, CellManager) else {}),
            **{f"cell.{at}": _bytes_of(cell) for at, (_, cell) in enumerate(cells)},
            **({} if values is None else {f"keys.{name}": array for name, array in columns.encode(values).items()}),
        },
    )


def read_manager(envelope: Envelope, *, secret: bytes = b"") -> SummaryManager:
    """The manager of a byte form, read by `nile.summaries.envelope.unpack`.

    secret: of its key hashing, where it had one.  Nothing is believed: raises EnvelopeError.
    """
    if envelope.kind != KIND:
        envelope.refuse(f"an envelope of kind {KIND!r}", envelope.kind)
    spec = _spec(envelope)
    keys = _keys(envelope, secret)
    if "cells" not in envelope.params:
        envelope.array("counters", "<i8", spec.counters_shape)  # before as much memory is asked for
        manager = SummaryManager(spec, keys)
    else:
        manager = CellManager(spec, keys, _summary(envelope, "cell"))
    store = manager.store
    tuples = envelope.integer("tuples", 0, 1 << 62)
    keep = envelope.integer("keep", 0, tuples)
    ts = envelope.array("ts", "<i8", (tuples - keep,))
    code = envelope.array("code", "<i4", (tuples - keep,))
    if ts.shape[0] and (bool((ts[1:] < ts[:-1]).any()) or not -1 <= int(code.min()) <= int(code.max()) < keys.known):
        envelope.refuse("times that do not fall and codes of known keys", "others")
    hashes = np.where(code < 0, np.uint64(0), keys.hashes()[code] if keys.known else np.uint64(0))
    _hold(store, keep, ts, code, hashes, keys.known)
    _count_gone(envelope, store, keys.known)
    side = store.side
    for name in ("counters", "detector", "recent", "moments"):
        into = getattr(side, name)
        into[...] = envelope.array(name, into.dtype.newbyteorder("<").str, into.shape)
    side.node[...] = envelope.array("node", "<i8", (side.node.shape[0], ga.NODE_FIELDS))
    ring = envelope.array("ring", "<i8", (spec.depth, 2))
    if bool((ring < 0).any()) or bool(
        (ring[:, 0] >= side.gran[:, ga.RING]).any() or (ring[:, 1] > side.gran[:, ga.RING]).any()
    ):
        envelope.refuse("rings of zones within their granularities", "others")
    side.gran[:, [ga.HEAD, ga.SIZE]] = ring
    side.zone[...] = envelope.array("zone", "<i8", (ga.ZONE_FIELDS,))
    if isinstance(manager, CellManager):
        manager.adopt(_cells(envelope, manager), manager.cell)
    return manager


def _bytes_of(cell: Summary) -> Array:
    return np.frombuffer(cell.to_bytes(), np.uint8)


def _summary(envelope: Envelope, name: str) -> Summary:
    data = envelope.array(name, "|u1", (None,))
    return read_summary(data.tobytes(), where=f"{envelope.where}, {name}")


def _cells(envelope: Envelope, manager: CellManager) -> dict[int, Summary]:
    """The summaries of the zones, one for each that has tuples with a key."""
    zones = {zone.start: zone.summarised for zone in manager.zones() if zone.summarised}
    if envelope.params["cells"] != sorted(zones):
        envelope.refuse(f"a summary for each of the zones from {sorted(zones)[:3]}", str(envelope.params["cells"])[:80])
    found = {start: _summary(envelope, f"cell.{at}") for at, start in enumerate(sorted(zones))}
    for start, cell in found.items():
        if type(cell) is not type(manager.cell) or cell._shape() != manager.cell._shape() or cell.total != zones[start]:
            envelope.refuse(f"a {manager.cell.describe()} of {zones[start]} tuples", repr(cell))
    return found


def _hold(store: TupleStore, keep: int, ts: Array, code: Array, hashes: Array, keys: int) -> None:
    """Put tuples back that a store held, the first of them with ordinal `keep`."""
    store.tuples = keep
    store.side.meta[ga.BASE] = store.side.meta[ga.KEEP_FROM] = keep
    store.extend(ts, code, hashes, keys)
    for begin in range(keep, store.tuples, PIECE):
        store.append(begin, min(begin + PIECE, store.tuples))


def _count_gone(envelope: Envelope, store: TupleStore, known: int) -> None:
    """Say how many entries of each list have gone: ranks count them."""
    lists = store.side.lists
    gone = envelope.array("appended", "<i8", (known,)) - lists[:known, ga.HELD]
    if bool((gone < 0).any()):
        envelope.refuse("as many tuples of each key as are held", "fewer")
    lists[:known, ga.GONE] = gone
    store.side.meta[ga.DROPPED_TUPLES] = int(gone.sum())


def _spec(envelope: Envelope) -> SummarySpec:
    try:
        return SummarySpec(**envelope.params["spec"])
    except (KeyError, TypeError, NileError) as error:
        envelope.refuse("the fields of a SummarySpec", str(error))


def _keys(envelope: Envelope, secret: bytes) -> KeyTable:
    """The key table: the distinct keys encoded again give their codes again."""
    if envelope.flag("keyed") != bool(secret):
        envelope.refuse("the secret of its key hashing" if not secret else "no secret", "none" if not secret else "one")
    table = KeyTable(KeyHasher(envelope.integer("seed", 0, (1 << 64) - 1), secret))
    known = envelope.integer("known", 0, (1 << 31) - 1)
    prefix = "keys."
    arrays = {name[len(prefix) :]: array for name, array in envelope.arrays.items() if name.startswith(prefix)}
    if envelope.params.get("schema") is not None or known:
        schema = schema_from_json(envelope.params.get("schema"), envelope.where)
        try:
            column = columns.decode(arrays, schema, envelope.where).column(0)
            column.validate(full=True)
            codes = table.encode(column, where=envelope.where).codes
        except (NileError, pa.ArrowException, IndexError) as error:
            envelope.refuse("distinct keys", str(error))
        if codes.shape[0] != known or not np.array_equal(codes, np.arange(known)):
            envelope.refuse(f"{known} distinct keys", f"{table.known} in {codes.shape[0]}")
    return table
