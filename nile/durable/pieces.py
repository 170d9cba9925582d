"""Arrays of a store in pieces that are written once, so that a checkpoint writes only what is new.

An array is cut where its own values say so, so that rows which leave at its beginning and come at its end leave the
pieces between as they are; what is equal by its hash is not written again, whoever holds it: queries that share a plan
hold the same.  New pieces of a checkpoint go into one file, a pack.  A pack of which less than half is still of use is
let go of: what is of use in it is written anew, so what is written stays in proportion to what is new.
Source: content-defined chunking as in LBFS (Muthitacharoen, Chen, Mazieres, SOSP 2001, section 3.1), over values
instead of bytes.
"""

from __future__ import annotations

import contextlib
import hashlib
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, Protocol

import numpy as np

from nile.pyramid.disk.manifest import StoredFile
from nile.summaries.envelope import Envelope

__all__ = ["Pieces", "Writing", "cuts"]

Array = np.ndarray[Any, Any]
Place = tuple[int, int, int]
"""A pack's number, an offset in it, a length: bytes."""

ROLE = "state-pieces"
LEAST = 1 << 16
"""Arrays of fewer bytes are not cut: they stand in the envelope itself."""
_KIND = ", in pieces"
_MEAN, _SHORTEST, _LONGEST = 4096, 1024, 16384  # bytes of a piece
_TOGETHER = 1 << 16  # bytes that one place may say: what somebody else wrote unpacks to no more
_MOST_PACKS = 64
_TYPES = frozenset(
    f"{order}{kind}" for order, kinds in (("<", "i2 u2 i4 u4 i8 u8 f4 f8"), ("|", "i1 u1 b1")) for kind in kinds.split()
)
_BLOCK = 1 << 15
_MIX = 0x9E3779B97F4A7C15
_WEIGHTS = (0xD6E8FEB86659FD93, 0xA5CB9243F0AEF257, 0xC2B2AE3D27D4EB4F, 0x9FB21C651E98DF25)


class Directory(Protocol):
    """A store, as far as packs go there."""

    def stage_path(self, role: str) -> Any:
        """A new file that is written by its path."""

    def map(self, file: StoredFile) -> memoryview:
        """Its bytes."""


class Pieces:
    """The pieces of the generation in force.

    known: where each lies, by its hash; packs: by their number.  Memory: about 150 bytes for 4 KB.
    """

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self.known: dict[bytes, Place] = {}
        self.packs: dict[int, StoredFile] = {}
        self._mapped: dict[int, memoryview] = {}

    def writing(self) -> Writing:
        """What the next checkpoint has."""
        return Writing(self._directory, self)

    def committed(self, written: Writing) -> None:
        """It is the generation in force now."""
        self.known, self.packs = written.used, written.packs

    def opened(self, packs: Sequence[StoredFile]) -> None:
        """Those of a store that is opened, in the order that it names them in."""
        self.packs = dict(enumerate(packs))
        self._mapped = {number: self._directory.map(file) for number, file in self.packs.items()}

    def read(self) -> None:
        """All that the store holds has been read."""
        self._mapped = {}

    def whole(self, envelope: Envelope) -> Envelope:
        """What `Writing.envelope` took apart; another envelope as it is.  Cost: two passes over what was cut.

        Raises EnvelopeError for what does not fit together, StoreCorrupt.
        """
        if not envelope.kind.endswith(_KIND):
            return envelope
        arrays, cut = dict(envelope.arrays), envelope.params.get("cut")
        if not isinstance(cut, list):
            _refuse(envelope, "a list of arrays", cut)
        places = envelope.array("places", "<i8", (None, 3))
        del arrays["places"]
        at = 0
        for row in cut:
            name, dtype, shape, count = row if isinstance(row, list) and len(row) == 4 else [None] * 4
            if not isinstance(name, str) or type(count) is not int or not 0 < count <= places.shape[0] - at:
                _refuse(envelope, "an array's name, type, shape and number of places", row)
            arrays[name] = self._array(envelope, name, dtype, shape, places[at : at + count].tolist())
            at += count
        if at != places.shape[0] or len(arrays) != len(envelope.arrays) - 1 + len(cut):
            _refuse(envelope, "each array once, and no more places than they have", at)
        names = envelope.params.get("order")
        if not isinstance(names, list) or sorted(map(str, names)) != sorted(arrays):
            _refuse(envelope, "the order of its arrays", names)
        params = envelope.params.get("params")
        if not isinstance(params, dict):
            _refuse(envelope, "its content", params)
        ordered = {name: arrays[name] for name in names}
        return Envelope(envelope.kind.removesuffix(_KIND), params, ordered, envelope.where)

    def _array(self, envelope: Envelope, name: str, dtype: Any, shape: Any, places: list[list[int]]) -> Array:
        parts = []
        for number, offset, length in places:
            data = self._mapped.get(number)
            if data is None or not 0 < length <= _TOGETHER or not 0 <= offset <= len(data) - length:
                _refuse(envelope, "a place inside of a pack of the manifest", (number, offset, length))
            parts.append(np.frombuffer(data, np.uint8, length, offset))
        raw = np.concatenate(parts) if len(parts) > 1 else parts[0]
        if not isinstance(dtype, str) or dtype not in _TYPES:
            _refuse(envelope, f"a type of {name!r}", dtype)
        try:
            flat = raw.view(np.dtype(dtype))
            array = flat.reshape(shape)
        except (TypeError, ValueError):
            _refuse(envelope, f"bytes of {name!r}, {dtype} of shape {shape}", raw.shape[0])
        self._learn(flat, places)
        return np.cumsum(array, dtype=array.dtype) if _is_rising(name, array) else array

    def _learn(self, flat: Array, places: list[list[int]]) -> None:
        """Where the pieces of an array lie, which stands at these places one after another."""
        held, data = iter(places), flat.view(np.uint8).data
        number, offset, left = next(held)
        for first, end in cuts(flat):
            if left == 0:
                number, offset, left = next(held)
            if end - first > left:
                return  # cut by another version: the next checkpoint writes it anew
            self.known.setdefault(_hash(data[first:end]), (number, offset, end - first))
            offset, left = offset + end - first, left - (end - first)


class Writing:
    """A checkpoint that is being written.  used: where each piece of it lies; packs: those that it needs, by number.

    Nothing of `Pieces` changes before `Pieces.committed`.  A context manager: at its end without `finish` nothing was
    written.
    """

    def __init__(self, directory: Directory, before: Pieces) -> None:
        self._directory = directory
        self._known = before.known
        self._stack = contextlib.ExitStack()
        self._staged: Any = None
        self._out: Any = None
        self._written = 0
        useful = dict.fromkeys(before.packs, 0)
        for number, _, length in before.known.values():
            useful[number] += length
        kept = [number for number, file in before.packs.items() if useful[number] * 2 >= file.length]
        if len(kept) > _MOST_PACKS:
            kept = sorted(sorted(kept, key=lambda number: -useful[number])[: _MOST_PACKS // 2])
        self._numbers = {number: at for at, number in enumerate(kept)}  # they are named in this order
        self._own = len(kept)
        self.packs = {at: before.packs[number] for number, at in self._numbers.items()}
        self.used: dict[bytes, Place] = {}

    def __enter__(self) -> Writing:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if self._out is not None:
            with contextlib.suppress(OSError):  # it goes
                self._out.close()
        self._stack.__exit__(kind, error, trace)

    def envelope(
        self, kind: str, params: Mapping[str, Any], arrays: Mapping[str, Array]
    ) -> tuple[str, Mapping[str, Any], Mapping[str, Array]]:
        """The same in pieces, for an envelope: kind, params, arrays.  Small arrays stay; if all do, so does all.

        Raises StoreWriteError, OSError.
        """
        large = [name for name, array in arrays.items() if array.nbytes >= LEAST and array.dtype.kind in "iufb"]
        if not large:
            return kind, params, arrays
        cut, places = [], []
        for name in large:
            array = np.ascontiguousarray(arrays[name])
            array = array.astype(array.dtype.newbyteorder("<"), copy=False)
            found = self._put(_steps(array) if _is_rising(name, array) else array)
            cut.append([name, array.dtype.str, list(array.shape), len(found)])
            places += found
        small = {name: array for name, array in arrays.items() if name not in large}
        told = {"params": params, "cut": cut, "order": list(arrays)}
        return kind + _KIND, told, {**small, "places": np.array(places, np.int64)}

    def finish(self) -> StoredFile | None:
        """The pack of what is new; None: nothing is.  Raises StoreWriteError."""
        if self._out is None:
            return None
        self._out.close()
        self._out = None
        self._stack.close()
        made: StoredFile = self._staged.file
        self.packs[self._own] = made
        return made

    def _put(self, array: Array) -> list[list[int]]:
        """Where an array lies, piece by piece; pieces that lie one after another are one."""
        data = array.reshape(-1).view(np.uint8).data
        out: list[list[int]] = []
        for first, end in cuts(array.reshape(-1)):
            piece = data[first:end]
            name = _hash(piece)
            place = self.used.get(name)
            if place is None:
                place = self.used[name] = self._before(name) or self._write(piece)
            number, offset, length = place
            last = out[-1] if out else [-1, 0, 0]
            if last[0] == number and last[1] + last[2] == offset and last[2] + length <= _TOGETHER:
                out[-1][2] += length
            else:
                out.append([number, offset, length])
        return out

    def _before(self, name: bytes) -> Place | None:
        place = self._known.get(name)
        if place is None or (number := self._numbers.get(place[0])) is None:
            return None
        return number, place[1], place[2]

    def _write(self, piece: memoryview) -> Place:
        if self._out is None:
            self._staged = self._stack.enter_context(self._directory.stage_path(ROLE))
            self._out = Path(self._staged.path).open("wb")  # noqa: SIM115 (closed at the end of this one)
        self._out.write(piece)
        self._written += len(piece)
        return self._own, self._written - len(piece), len(piece)


def cuts(array: Array) -> list[tuple[int, int]]:
    """(first, end) of the pieces of a flat array, in bytes: where they end depends on the few values before alone.

    Cost: about 1 ns for 8 bytes, and 2 us a piece.
    """
    size, n = array.dtype.itemsize, array.shape[0]
    if not n:
        return []
    least, most = _SHORTEST // size, _LONGEST // size
    ends = _ends(array.view(np.dtype(f"u{size}")), _MEAN // size)
    out, at = [], 0
    while n - at > most:
        k = bisect_left(ends, at + least)
        end = ends[k] if k < len(ends) and ends[k] < at + most else at + most
        out.append((at * size, end * size))
        at = end
    out.append((at * size, n * size))
    return out


def _ends(values: Array, mean: int) -> list[int]:
    """Where a piece may end: behind values whose mixture with the few before is small, one in `mean` of them."""
    wide: Any = np.uint64 if values.dtype.itemsize == 8 else np.uint32
    bits = 8 * np.dtype(wide).itemsize
    mix, *weights = (wide(each & ((1 << bits) - 1)) for each in (_MIX, *_WEIGHTS))
    limit = wide((1 << bits) // mean - 1)
    doublings = 4
    before = (1 << doublings) - 1
    found = []
    for first in range(0, values.shape[0], _BLOCK):
        since = max(first - before, 0)
        h: Any = values[since : first + _BLOCK].astype(wide)
        h *= mix
        h ^= h >> wide(bits // 2 - 3)
        h *= mix
        for k in range(doublings):
            step = 1 << k
            h[step:] += h[:-step] * weights[k]
        at = np.flatnonzero(h - wide(1) < limit) + since  # 0 comes of many zeros: they do not end a piece
        found.append(at[at >= first] + 1)
    return [int(each) for each in np.concatenate(found)]


def _hash(piece: memoryview) -> bytes:
    return hashlib.blake2b(piece, digest_size=16).digest()


def _is_rising(name: str, array: Array) -> bool:
    """Whether an array says where others begin: rows that leave before move all of it, but no difference."""
    return name.endswith(".offsets") and array.ndim == 1 and array.dtype.kind == "i"


def _steps(array: Array) -> Array:
    out = array.copy()
    out[1:] -= array[:-1]
    return out


def _refuse(envelope: Envelope, needed: str, came: object) -> NoReturn:
    envelope.refuse(f"needed {needed}", str(came)[:60])
