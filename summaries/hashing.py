"""Keys of every column type: one hash and one dense code for each distinct value.

The hash is the same in every process and on every executor.  Text and bytes are dictionary-encoded per
batch and only distinct values are hashed (MurmurHash3 x64-128, low 64 bits); everything of fixed width goes
through a seeded 64-bit mixer.  Codes are given by comparing values, never hashes, so two colliding keys
stay two keys.  Source: DESIGN section 2, Keys; the papers leave hashing open.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from nile.summaries.errors import ConfigError, KeyTypeError
from nile.summaries.heavy import pa
from nile.summaries.key_types import (
    dictionary_of,
    is_hashed,
    key_family,
    kind_of_answers,
    strings_of,
    unfit,
    widest,
    words_of,
)
from nile.summaries.lazy import lazy

if TYPE_CHECKING:
    from nile.summaries import hash_kernels as kernels
else:
    kernels = lazy("nile.summaries.hash_kernels")

__all__ = [
    "PUBLIC",
    "Encoded",
    "KeyHasher",
    "KeyTable",
    "hash_keys",
    "hash_order",
    "key_words",
    "mixed",
]

Array = np.ndarray[Any, Any]
SEED = 0x9E3779B97F4A7C15
_NO_MASK = np.zeros(0, np.bool_)


@dataclass(frozen=True, slots=True)
class KeyHasher:
    """How values become 64-bit hashes.

    Default: fast and the same everywhere.  With a `secret` (16 bytes or more, kept with the store) hashes
    are BLAKE2b keyed with it, about a microsecond per distinct value, for keys an adversary may choose.
    """

    seed: int = SEED
    secret: bytes = b""

    @classmethod
    def keyed(cls, secret: bytes | None = None) -> KeyHasher:
        """A hasher for untrusted keys.  Raises ConfigError for a secret under 16 or over 64 bytes."""
        secret = secrets.token_bytes(32) if secret is None else secret
        if not 16 <= len(secret) <= 64:
            raise ConfigError(
                f"key hashing: the secret needs 16 to 64 bytes; got {len(secret)}; use secrets.token_bytes(32)"
            )
        return cls(secret=secret)

    @property
    def check(self) -> str:
        """Tells this secret from another, and nothing else of it: 16 hexadecimal digits."""
        return hashlib.blake2b(b"nile: which secret", digest_size=8, key=self.secret, person=b"check").hexdigest()

    def words(self, values: Array) -> Array:
        """Hash fixed-width values.  values: int64 [n]; returns uint64 [n]."""
        out = np.empty(values.shape[0], np.uint64)
        if self.secret:
            distinct, place = np.unique(values, return_inverse=True)  # a keyed hash costs more than a sort does
            found = np.empty(distinct.shape[0], np.uint64)
            self._keyed_into([v.tobytes() for v in distinct.astype("<i8")], found)
            np.take(found, place, out=out)
        else:
            kernels.mix_all(values, np.uint64(self.seed), out)
        return out

    def strings(self, data: Array, offsets: Array) -> Array:
        """Hash byte strings data[offsets[i]:offsets[i + 1]].  uint8, int64 [n + 1]; returns uint64 [n]."""
        out = np.empty(offsets.shape[0] - 1, np.uint64)
        if self.secret:
            raw = data.tobytes()
            self._keyed_into([raw[offsets[i] : offsets[i + 1]] for i in range(out.shape[0])], out)
        else:
            kernels.murmur_all(data, offsets, np.uint64(self.seed & 0xFFFFFFFF), out)
        return out

    def _keyed_into(self, values: list[bytes], out: Array) -> None:
        for i, value in enumerate(values):
            digest = hashlib.blake2b(value, digest_size=8, key=self.secret).digest()
            out[i] = int.from_bytes(digest, "little")


PUBLIC = KeyHasher()
"""Without a secret: the same in every process, and known to everybody."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """A key column as arrays.  codes: int32 [n], -1 for null; hashes: uint64 [n], 0 for null."""

    codes: Array
    hashes: Array


def hash_keys(column: pa.Array, hasher: KeyHasher | None = None, *, where: str = "key") -> Array:
    """The hash of every key of a column [n], as a summary takes them: uint64 [n], 0 for null.

    The same hashes as `KeyTable.encode` gives, for when no codes are wanted.  Raises KeyTypeError likewise.
    """
    return KeyTable(hasher or KeyHasher()).encode(column, where=where).hashes


def key_words(column: pa.Array, *, where: str = "key") -> tuple[Array, Array]:
    """(words, valid) of a column [n], int64 [n] and bool [n], the latter [0] where no key is null.

    Keys that are equal have equal words; so, but for text, bytes and decimals, whose words are hashes, have no others.
    Numbers of 64 bits are not copied.  Raises KeyTypeError.
    """
    if isinstance(column, pa.ChunkedArray):  # one chunk would be copied by `combine_chunks`
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    family = key_family(column.type, where=where)
    n = len(column)
    if family == "null":
        return np.zeros(n, np.int64), np.zeros(n, np.bool_)
    valid = column.is_valid().to_numpy(zero_copy_only=False) if column.null_count else _NO_MASK
    if pa.types.is_dictionary(column.type):
        words, _ = key_words(column.dictionary, where=where)
        if not words.shape[0]:
            return np.zeros(n, np.int64), valid
        return words[column.indices.fill_null(0).to_numpy(zero_copy_only=False)], valid
    if is_hashed(column.type):
        return PUBLIC.strings(*strings_of(column)).view(np.int64), valid
    try:
        return words_of(column, family), valid
    except pa.ArrowInvalid as error:
        raise unfit(where, column.type, error) from None


def mixed(words: Array) -> Array:
    """The output function of splitmix64, of each word: uint64 [n] (Steele, Lea, Flood, OOPSLA 2014)."""
    z = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    found: Array = z ^ (z >> np.uint64(31))
    return found


def hash_order(hashes: Array) -> Array:
    """The places of hashes (uint64 [n]) in ascending order, equal ones as they came: int64 [n].

    A sort that keeps the order of equals takes five times as long, and hashes of different keys are hardly ever equal.
    """
    order = hashes.argsort()
    ascending = hashes[order]
    if (ascending[1:] == ascending[:-1]).any():
        order = hashes.argsort(kind="stable")
    return order


@dataclass(slots=True)
class KeyTable:
    """Dense codes for the distinct keys of all streams that join on one attribute.

    One table serves both sides of a join, so equal codes mean equal keys.  Memory grows with distinct keys
    only: about 28 bytes per key, plus the bytes of text.  `encode` costs a few nanoseconds a tuple.
    """

    hasher: KeyHasher = field(default_factory=KeyHasher)
    family: str = ""
    kind: Any = None
    known: int = 0
    _table: Array = field(default_factory=lambda: np.zeros(1024, np.int32))
    _words: Array = field(default_factory=lambda: np.zeros(512, np.int64))
    _hashes: Array = field(default_factory=lambda: np.zeros(512, np.uint64))
    _arena: Array = field(default_factory=lambda: np.zeros(4096, np.uint8))

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self._table.nbytes + self._words.nbytes + self._hashes.nbytes + self._arena.nbytes

    def encode(self, column: pa.Array, *, where: str = "key") -> Encoded:
        """Codes and hashes of a column [n]; new values get the next codes, in order of first appearance.

        Raises KeyTypeError when the column's type is no key, or not comparable with the keys already here.
        """
        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks()
        family = key_family(column.type, where=where)
        if family == "null":
            n = len(column)
            return Encoded(np.full(n, -1, np.int32), np.zeros(n, np.uint64))
        if not self.family:
            self.family = family
            self.kind = kind_of_answers(column.type)
        elif family != self.family:
            raise KeyTypeError(
                f"{where}: keys here are {self.family}; got {column.type} ({family}), which does not compare with "
                "them; cast one side"
            )
        elif kind_of_answers(column.type) != self.kind:
            self.kind = widest(family, self.kind)
        try:
            if pa.types.is_dictionary(column.type):
                return self._encode_dictionary(column)
            if self._is_bytes:
                return self._encode_dictionary(dictionary_of(column))
            return self._encode_words(column)
        except pa.ArrowInvalid as error:
            raise unfit(where, column.type, error) from None

    def hashes(self) -> Array:
        """The hash of every code: uint64 [known]."""
        return self._hashes[: self.known]

    def decode(self, codes: Array) -> pa.Array:
        """The keys of codes (int [n]; -1 gives null) as an Arrow array of the columns' type.

        Columns of several types (int32 and int64, seconds and nanoseconds) give the widest of their family.
        """
        if self.kind is None:
            return pa.nulls(len(codes))
        return self.values().take(pa.array(np.where(codes < 0, 0, codes), mask=codes < 0))

    def values(self) -> pa.Array:
        """All distinct keys in the order of their codes, [known]."""
        if not self._is_bytes:
            words = self._words[: self.known]
            return self._from_words(words)
        ends = self._words[: self.known]
        offsets = np.concatenate([np.zeros(1, np.int64), ends])
        data = self._arena[: ends[-1] if self.known else 0].copy()
        if self.family.startswith("decimal"):
            buffers = [None, pa.py_buffer(data)]
        else:
            buffers = [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(data)]
        wide = widest(self.family, self.kind)
        return pa.Array.from_buffers(wide, self.known, buffers).cast(self.kind)

    @property
    def _is_bytes(self) -> bool:
        return self.family in ("text", "bytes") or self.family.startswith("decimal")

    def _from_words(self, words: Array) -> pa.Array:
        if self.family == "boolean":
            return pa.array(words != 0)
        return pa.array(words).view(widest(self.family, self.kind)).cast(self.kind)

    def _encode_words(self, column: pa.Array) -> Encoded:
        n = len(column)
        values = words_of(column, self.family)
        hashes = self.hasher.words(values)
        valid = _NO_MASK
        if column.null_count:
            valid = column.is_valid().to_numpy(zero_copy_only=False)
            hashes[~valid] = 0
        codes = np.empty(n, np.int32)
        done = 0
        while done < n:
            before = self.known
            done, self.known = kernels.intern_words(
                values, hashes, valid, self._table, self._words, self.known, done, codes
            )
            if self.known > before:
                self._hashes[before : self.known] = self.hasher.words(self._words[before : self.known])
            if done < n:
                self._grow()
        return Encoded(codes, hashes)

    def _encode_dictionary(self, column: pa.Array) -> Encoded:
        dictionary = column.dictionary
        if dictionary.null_count or not self._is_bytes:
            flat = column.cast(column.type.value_type)
            return self._encode_dictionary(dictionary_of(flat)) if self._is_bytes else self._encode_words(flat)
        data, offsets = strings_of(dictionary)
        hashes = self.hasher.strings(data, offsets)
        codes = np.empty(len(dictionary), np.int32)
        done = 0
        while done < len(dictionary):
            done, self.known = kernels.intern_bytes(
                data,
                offsets,
                hashes,
                self._table,
                self._arena,
                self._words,
                self._hashes,
                self.known,
                done,
                codes,
            )
            if done < len(dictionary):
                used = int(self._words[self.known - 1]) if self.known else 0
                size = int(offsets[done + 1] - offsets[done])
                if used + size > self._arena.shape[0]:
                    self._arena = _resized(self._arena, max(2 * self._arena.shape[0], used + size))
                else:
                    self._grow()
        indices = column.indices
        if indices.null_count:
            valid = indices.is_valid().to_numpy(zero_copy_only=False)
            at = indices.fill_null(0).to_numpy(zero_copy_only=False)
            if len(dictionary) == 0:
                return Encoded(np.full(len(at), -1, np.int32), np.zeros(len(at), np.uint64))
            return Encoded(
                np.where(valid, codes[at], -1).astype(np.int32),
                np.where(valid, hashes[at], 0).astype(np.uint64),
            )
        at = indices.to_numpy(zero_copy_only=False)
        return Encoded(codes[at], hashes[at])

    def _grow(self) -> None:
        slots = 2 * self._table.shape[0]
        self._words = _resized(self._words, slots // 2)
        self._hashes = _resized(self._hashes, slots // 2)
        self._table = np.zeros(slots, np.int32)
        kernels.refill(self._table, self._hashes, self.known)


def _resized(array: Array, size: int) -> Array:
    bigger = np.zeros(size, array.dtype)
    bigger[: array.shape[0]] = array
    return bigger
