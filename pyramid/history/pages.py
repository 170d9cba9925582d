"""Files of pages: big immutable files of which a reader maps all and checks only what it uses.

Layout, little-endian: 16 bytes magic and version; pages, each padded to 8 bytes; the footer, an envelope
(`nile.summaries.envelope`) with what the pages are and, for each, where it lies, its length, its length when
unpacked (0: stored as it is) and its checksum; 16 bytes: length of the footer and the end mark.
So a file is written in one pass, page by page, and every byte read is covered by a checksum: the footer's own,
checked when the file is opened, and a page's, checked before its first use.  A page is never parsed before.
A page's checksum is MurmurHash3 x64-128: as no step of it forgets anything, damage within 16 bytes that lie together
always shows, other damage but for 1 in 2**128, at a seventh of the time of the BLAKE2b-256 of version 1.  Neither is
proof against who writes files: a checksum without a secret can be written anew with the page.  From version 3 on key
indices have digests in place of sketches (`key_digest`).
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from hashlib import blake2b
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn

import mmh3
import numpy as np

from nile.summaries.envelope import Envelope, pack, unpack
from nile.summaries.errors import EnvelopeError, StoreCorrupt, StoreTooNew
from nile.summaries.heavy import pa
from nile.summaries.lazy import lazy

if TYPE_CHECKING:
    from nile.summaries import hash_kernels
else:
    hash_kernels = lazy("nile.summaries.hash_kernels")

__all__ = ["PageFile", "PageWriter", "blocks", "packed_batch", "unpacked_batch"]

Array = np.ndarray[Any, Any]

MAGIC = b"\x89NILEPG\n"
VERSION = 3
_END = b"\nNILEPG\x89"
_START = struct.Struct("<8sII")
_FINISH = struct.Struct("<Q8s")
_LONGEST_PAGE = 1 << 31
_MOST_PACKED = 255  # how many bytes LZ4 can make of one
_AHEAD = 1 << 17
"""Bytes that are asked of the disk where a page is read that follows the one before: those behind it are next."""
_LONG = 1 << 16
"""Bytes of a page that take some 10 us to check."""
_KEPT_SHARE = 0.9  # a page is stored packed when that saves a tenth


@cache
def _codec() -> pa.Codec:
    return pa.Codec("lz4_raw")


def _blake2b(piece: memoryview) -> bytes:
    return blake2b(piece, digest_size=32).digest()


def _murmur(piece: memoryview) -> bytes:
    """MurmurHash3 x64-128 of a page; of a long one by a kernel, as others may want the interpreter meanwhile."""
    if len(piece) < _LONG:
        found: bytes = mmh3.mmh3_x64_128_digest(piece)
        return found
    out = np.empty(2, np.uint64)
    hash_kernels.murmur_whole(np.frombuffer(piece, np.uint8), out)
    return out.astype("<u8", copy=False).tobytes()


_SUMS: Mapping[int, tuple[str, int, Callable[[memoryview], bytes]]] = MappingProxyType(
    {1: ("page.digest", 32, _blake2b), 2: ("page.sum", 16, _murmur), 3: ("page.sum", 16, _murmur)}
)
"""By version: the footer's array with the checksums of pages, the bytes of one, what makes it."""


class PageWriter:
    """Makes the bytes of a file of pages, in order.  Memory: 48 bytes per page."""

    def __init__(self) -> None:
        self._at = _START.size
        self._rows: list[tuple[int, int, int]] = []
        self._sums: list[bytes] = []
        _, _, self._sum = _SUMS[VERSION]

    def start(self) -> bytes:
        """The first bytes."""
        return _START.pack(MAGIC, VERSION, 0)

    @property
    def pages(self) -> int:
        """Pages so far: the number of the next."""
        return len(self._rows)

    def page(self, data: Any, *, squeeze: bool = False) -> Iterator[Any]:
        """One more page, as the pieces to write.  data: bytes-like; squeeze: LZ4, where that saves a tenth.

        Cost: a checksum, some 0.1 ns a byte; LZ4 some 1 ns a byte.
        """
        piece = memoryview(data).cast("B")
        size = 0
        if squeeze:
            smaller = _codec().compress(piece, asbytes=True)
            if len(smaller) < _KEPT_SHARE * len(piece):
                size = len(piece)
                piece = memoryview(smaller)
        n = len(piece)
        self._rows.append((self._at, n, size))
        self._sums.append(self._sum(piece))
        padding = -n % 8
        self._at += n + padding
        yield piece
        if padding:
            yield bytes(padding)

    def finish(self, kind: str, params: Mapping[str, Any], arrays: Mapping[str, Array]) -> bytes:
        """The last bytes: footer and end mark."""
        table = np.array(self._rows, np.int64).reshape(-1, 3)
        name, size, _ = _SUMS[VERSION]
        sums = np.frombuffer(b"".join(self._sums), np.uint8).reshape(-1, size)
        footer = pack(kind, params, {**arrays, "page.table": table, name: sums})
        return footer + _FINISH.pack(len(footer), _END)


class PageFile:
    """A file of pages over mapped memory.  Opening checks the footer, reading a page that page, once.

    where: the file, for messages; version: every intact file of version 1..VERSION is read.
    Raises StoreCorrupt for bytes that are not those written, StoreTooNew for a newer version.
    """

    def __init__(self, data: memoryview, kind: str, where: str) -> None:
        self.where = where
        self.data = data.cast("B")
        self.bytes_read = 0
        self._map = data.obj if isinstance(data.obj, mmap.mmap) and hasattr(mmap, "MADV_WILLNEED") else None
        self._wanted = (0, 0)
        self._read_to = 0
        version, footer, ends = self._footer()
        name, self._size, self._sum = _SUMS[version]
        try:
            self.footer: Envelope = unpack(footer, where=where)
            if self.footer.kind != kind:
                self.footer.refuse(f"kind {kind!r}", repr(self.footer.kind))
            table = self.footer.array("page.table", "<i8", (None, 3))
            sums = self.footer.array(name, "|u1", (table.shape[0], self._size))
        except EnvelopeError as error:
            raise StoreCorrupt(f"{error}; `nile store check` lists what else is damaged") from None
        at, length, size = table[:, 0], table[:, 1], table[:, 2]
        fits = (at >= _START.size) & (at % 8 == 0) & (length >= 0) & (length <= _LONGEST_PAGE) & (at <= ends - length)
        if not (fits & (size >= 0) & (size <= _LONGEST_PAGE)).all():
            self.corrupt("footer", "pages inside the file", "one beyond it")
        self._table = table
        self._sums = np.ascontiguousarray(sums).reshape(-1).data
        self._checked = np.zeros(table.shape[0], np.bool_)

    def _footer(self) -> tuple[int, memoryview, int]:
        n = len(self.data)
        if n < _START.size + _FINISH.size:
            self.corrupt("file", f"{_START.size + _FINISH.size} bytes at least", f"{n}")
        self._want(0, _START.size)
        self._want(max(0, n - _AHEAD), n)
        magic, version, _ = _START.unpack_from(self.data)
        length, end = _FINISH.unpack_from(self.data, n - _FINISH.size)
        if magic != MAGIC:
            self.corrupt("start", f"the bytes {MAGIC!r}", repr(magic))
        if version > VERSION:
            raise StoreTooNew(f"{self.where}: needed version {VERSION} or older; got version {version}; upgrade Nile")
        if version < 1 or end != _END or not 0 < length <= n - _START.size - _FINISH.size:
            self.corrupt("end", "the end mark and the footer's length", f"{end!r} and {length}")
        ends = n - _FINISH.size - length
        self._want(ends, n)
        return int(version), self.data[ends : n - _FINISH.size], ends

    def _want(self, begin: int, end: int, ahead: int = 0) -> None:
        """Have the disk bring these bytes, and `ahead` of them where it has to be asked.

        A look at mapped memory that is not there waits for the disk, a page at a time, and the system reads as much
        around it as it is set to: of a store that is opened, all.
        """
        if self._map is not None and not self._wanted[0] <= begin <= end <= self._wanted[1]:
            begin -= begin % mmap.PAGESIZE
            end = min(end + ahead, len(self.data))
            self._map.madvise(mmap.MADV_WILLNEED, begin, end - begin)
            self._wanted = begin, end

    def want(self, pages: Array) -> None:
        """Have the disk bring pages (int64 [n], known to exist) that were not read yet, all at once.

        Ascending ones that lie back to back are one request.
        """
        begin = end = -1
        for at, n, _ in self._table[pages[~self._checked[pages]]].tolist():
            if not 0 <= at - end < 8:
                if end > begin:
                    self._want(begin, end)
                begin = at
            end = at + n
        if end > begin:
            self._want(begin, end)

    def corrupt(self, part: str, needed: str, came: str) -> NoReturn:
        """Raise StoreCorrupt for a part of this file."""
        raise StoreCorrupt(
            f"{self.where}, {part}: needed {needed}; got {came}; the bytes changed since they were written: bring the "
            "file back from a copy, or see what `nile store repair` can save"
        )

    @property
    def pages(self) -> int:
        """How many pages."""
        return int(self._table.shape[0])

    def at(self, pages: Array) -> Array:
        """Where pages (int64 [n], known to exist) begin: int64 [n] bytes."""
        found: Array = self._table[pages, 0]
        return found

    def extent(self, pages: Array) -> tuple[Array, Array]:
        """Where pages (int64 [n]) begin and how long they are: int64 [n] bytes each.  Raises StoreCorrupt."""
        self._check_numbers(pages)
        return self._table[pages, 0], self._table[pages, 1]

    def is_fresh(self, page: int) -> bool:
        """Whether a page was not read yet."""
        return 0 <= page < self.pages and not self._checked[page]

    def check_lengths(self, pages: Array, length: Array) -> None:
        """Check that pages (int64 [n]) exist and are stored as they are, in so many bytes (int64 [n])."""
        self._check_numbers(pages)
        if ((self._table[pages, 1] != length) | (self._table[pages, 2] != 0)).any():
            self.corrupt("footer", "pages as long as what they hold", "another length")

    def check(self, pages: Array) -> Array:
        """Check the bytes of pages (int64 [n]) that were not yet: bool [n], which were not."""
        self._check_numbers(pages)
        fresh: Array = ~self._checked[pages]
        found = pages[fresh]
        self.want(found)
        for page, (at, n, _) in zip(found.tolist(), self._table[found].tolist(), strict=True):
            if not self._checked[page]:  # a page may be asked for twice
                self._compare(page, at, n)
        return fresh

    def _check_numbers(self, pages: Array) -> None:
        if pages.shape[0] and not 0 <= int(pages.min()) <= int(pages.max()) < self.pages:
            self.corrupt("footer", f"page numbers below {self.pages}", f"{int(pages.max())}")

    def check_one(self, page: int) -> bool:
        """Check the bytes of a page (known to exist) that was not yet; whether it was not."""
        if self._checked[page]:
            return False
        self._check(page)
        return True

    def _check(self, page: int) -> memoryview:
        at, n, _ = self._table[page].tolist()
        if not self._checked[page]:
            self._want(at, at + n, _AHEAD if 0 <= at - self._read_to <= _AHEAD else 0)
            self._compare(page, at, n)
        self._read_to = at + n
        return self.data[at : at + n]

    def _compare(self, page: int, at: int, n: int) -> None:
        found = self._sum(self.data[at : at + n])
        written = self._sums[page * self._size : (page + 1) * self._size]
        if found != written:
            self.corrupt(f"page {page}", f"checksum {written.hex()[:16]}...", f"{found.hex()[:16]}...")
        self._checked[page] = True
        self.bytes_read += n

    def page(self, page: int) -> memoryview:
        """A page's bytes, checked; packed ones unpacked into memory of their own."""
        if not 0 <= page < self.pages:
            self.corrupt("footer", f"page numbers below {self.pages}", f"{page}")
        piece = self._check(page)
        size = int(self._table[page, 2])
        if not size:
            return piece
        if size > _MOST_PACKED * len(piece):
            self.corrupt(f"page {page}", f"at most {_MOST_PACKED} bytes of each packed one", f"{size} of {len(piece)}")
        try:
            return memoryview(_codec().decompress(piece, size))
        except (pa.ArrowException, OSError) as error:
            self.corrupt(f"page {page}", f"{size} bytes of LZ4", str(error))

    def numbers(self, page: int, dtype: str, count: int) -> Array:
        """A page as numbers: a read-only view where it is not packed."""
        data = self.page(page)
        kind = np.dtype(dtype)
        if len(data) != count * kind.itemsize:
            self.corrupt(f"page {page}", f"{count} numbers of {kind.itemsize} bytes", f"{len(data)} bytes")
        return np.frombuffer(data, kind)

    def batch(self, page: int, schema: pa.Schema, rows: int) -> pa.RecordBatch:
        """A page as rows of a schema; its first reading looks into every value."""
        fresh = self.is_fresh(page)
        data = self.page(page)
        try:
            batch = unpacked_batch(data, schema, look=fresh)
        except (pa.ArrowException, OSError, ValueError) as error:
            self.corrupt(f"page {page}", f"{rows} rows of {schema.names}", str(error))
        if len(batch) != rows:
            self.corrupt(f"page {page}", f"{rows} rows", f"{len(batch)}")
        return batch


def blocks(parts: Iterable[Any], size: int = 1 << 20) -> Iterator[bytes]:
    """The same bytes in blocks of about `size`: a write and a hash call for each piece would cost as much as both."""
    held: list[Any] = []
    n = 0
    for part in parts:
        held.append(part)
        n += memoryview(part).nbytes
        if n >= size:
            yield b"".join(held)
            held, n = [], 0
    if held:
        yield b"".join(held)


def packed_batch(batch: pa.RecordBatch) -> pa.Buffer:
    """A batch without dictionaries as an Arrow IPC message."""
    return batch.serialize()


def unpacked_batch(data: memoryview, schema: pa.Schema, *, look: bool) -> pa.RecordBatch:
    """The batch of an Arrow IPC message, over the same memory.  Raises ArrowException for what is none.

    look: into offsets and text too, some 5 ns a value.
    """
    batch = pa.ipc.read_record_batch(pa.py_buffer(data), schema)
    batch.validate(full=look)
    return batch
