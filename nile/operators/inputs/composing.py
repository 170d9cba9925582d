"""The keys of loaded streams as joins compare them: several columns as one, decimals as doubles beside doubles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from nile.base.nearest import nearest
from nile.base.plain import decoded_type
from nile.exact.join.chain import composite_codes
from nile.operators.inputs.joining import Loaded
from nile.summaries.heavy import pa

__all__ = ["comparable", "composed"]

Array = np.ndarray[Any, Any]


def composed(streams: Sequence[Loaded], further: Sequence[tuple[str, ...]]) -> tuple[Loaded, ...]:
    """The streams of a join by several columns, of which keys are codes, equal exactly when all columns are.

    further: of each, its columns beside its key, as many of each, which are carried.  Places that are alike share an
    object.  Raises KeyTypeError.
    """
    if not any(further):
        return tuple(streams)
    alike = [(id(one), names) for one, names in zip(streams, further, strict=True)]
    own = dict(zip(alike, streams, strict=True))
    keys: list[list[pa.ChunkedArray]] = []
    for (_, names), one in own.items():
        batch = one.carried
        columns = [pa.array([], pa.null()) if batch is None else batch.column(name) for name in names]
        keys.append([one.key, *(pa.chunked_array([column]) for column in columns)])
    codes = composite_codes(list(zip(*keys, strict=True)), threads=streams[0].threads)
    made = {
        at: replace(one, key=pa.chunked_array([_numbers(code)]), parts=tuple(parts))
        for (at, one), code, parts in zip(own.items(), codes, keys, strict=True)
    }
    return tuple(made[at] for at in alike)


def comparable(streams: Sequence[Loaded]) -> tuple[Loaded, ...]:
    """The streams of a join, whose keys that are decimals are doubles where others' are: so these are compared."""
    kinds = [decoded_type(one.key.type) for one in streams]
    if not (any(map(pa.types.is_floating, kinds)) and any(map(pa.types.is_decimal, kinds))):
        return tuple(streams)
    made = {
        id(one): replace(one, key=nearest(one.key, pa.float64())) if pa.types.is_decimal(kind) else one
        for one, kind in zip(streams, kinds, strict=True)
    }
    return tuple(made[id(one)] for one in streams)


def _numbers(codes: Array) -> pa.Array:
    """Codes as a column; null where they are below 0."""
    null = codes < 0
    validity = pa.py_buffer(np.packbits(~null, bitorder="little")) if null.any() else None
    return pa.Array.from_buffers(pa.int64(), codes.shape[0], [validity, pa.py_buffer(codes)])
