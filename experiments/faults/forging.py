"""Forged bytes of Nile's files: something is changed, and every checksum over it is made to agree again.

Envelopes (`nile.summaries.envelope`), files of pages (`nile.pyramid.history.pages`) and manifests
(`nile.pyramid.disk.manifest`); of other files single bytes.  What a forger can do who can write to the store and
knows its code.
"""

from __future__ import annotations

import json
import struct
from hashlib import blake2b
from pathlib import Path
from random import Random
from typing import Any

import mmh3

from nile.pyramid.disk.manifest import MANIFESTS

__all__ = ["forge", "forged"]

_PREFIX = struct.Struct("<8sIIQ8x")
_FINISH = struct.Struct("<Q8s")
_FIRST = 64
_NUMBERS: tuple[Any, ...] = (
    0, 1, -1, 2, 7, 255, 256, 65_536,
    2**31 - 1, 2**31, -(2**31), 2**32, 2**40, 2**53, 2**62, 2**63 - 1, 2**63, -(2**63),
    2**64, 10**30, 1.5, -0.0, 1e308, 5e-324,
)  # fmt: skip
_OTHERS: tuple[Any, ...] = (
    None, True, False, "", "x", "x" * 70_000, "../../etc/passwd", "a\0b", "\ud800", [], {}, [[]], [0] * 50,
    {"array": 0}, {"rows": 0, "schema": []},
)  # fmt: skip
_DTYPES = ("|i1", "|u1", "|b1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8", "<f4", "<f8", "|O", "<U4", ">i8", "V8")


def forge(root: Path, rng: Random) -> str:
    """Change one file of a store, and the manifests that name it; what was changed."""
    files = sorted(path for path in root.rglob("*") if path.is_file() and path.name != "LOCK")
    path = rng.choice(files)
    name = path.relative_to(root).as_posix()
    before = path.read_bytes()
    after = forged(before, rng)
    path.write_bytes(after)
    if path.name not in MANIFESTS:
        for manifest in MANIFESTS:
            _vouch(root / manifest, name, after)
    return name


def forged(data: bytes, rng: Random) -> bytes:
    """The bytes with a change inside, valid to whoever checks only checksums."""
    if data.startswith(b"\x89NILE\r\n"):
        return _envelope(data, rng)
    if data.startswith(b"\x89NILEPG\n"):
        return _pages(data, rng)
    return _bytes(data, rng)


def _vouch(manifest: Path, name: str, data: bytes) -> None:
    """Make a manifest agree with the new bytes of a file."""
    header, body = _taken_apart(manifest.read_bytes())
    claims = json.loads(header)
    listed, state = _arrays(claims, body)
    rows = json.loads(listed)
    for row in rows:
        if row[0] == name:
            row[2] = len(data)
            row[3] = data[32:64].hex() if row[4] else blake2b(data, digest_size=32).hexdigest()
    listed = json.dumps(rows, separators=(",", ":")).encode("ascii")
    for entry, piece in zip(claims["arrays"], (listed, state), strict=True):
        entry["shape"] = [len(piece)]
    manifest.write_bytes(_sealed(json.dumps(claims).encode("ascii"), _padded(listed) + _padded(state)))


def _envelope(data: bytes, rng: Random) -> bytes:
    header, body = _taken_apart(data)
    claims = json.loads(header)
    kind = rng.random()
    if kind < 0.5 and claims["params"]:
        _change(claims["params"], rng)
    elif kind < 0.6:
        _change(claims, rng)
    elif kind < 0.7 and claims["arrays"]:
        entry = rng.choice(claims["arrays"])
        what = rng.choice(["name", "dtype", "shape"])
        entry[what] = {
            "name": rng.choice([*(each["name"] for each in claims["arrays"]), "", "x", "0/"]),
            "dtype": rng.choice(_DTYPES),
            "shape": [rng.choice(_NUMBERS) for _ in range(rng.randrange(4))],
        }[what]
    elif kind < 0.75:
        header = _bytes(header, rng)
        return _sealed(header, body)
    elif claims["arrays"] and claims["kind"] == "manifest" and kind < 0.95:
        body = _json_arrays(claims, body, rng)
    else:
        body = _words(body, rng)
    header = json.dumps(claims, separators=(",", ":")).encode("ascii")
    return _sealed(header, body)


def _json_arrays(claims: dict[str, Any], body: bytes, rng: Random) -> bytes:
    """Change what a manifest's arrays say as JSON."""
    pieces = _arrays(claims, body)
    at = rng.randrange(len(pieces))
    value = json.loads(pieces[at])
    _change(value, rng)
    pieces[at] = json.dumps(value, separators=(",", ":")).encode("ascii")
    for entry, piece in zip(claims["arrays"], pieces, strict=True):
        entry["shape"] = [len(piece)]
    return b"".join(map(_padded, pieces))


def _pages(data: bytes, rng: Random) -> bytes:
    """Change the footer, or a page together with its entry in the footer."""
    length, end = _FINISH.unpack(data[-_FINISH.size :])
    footer = data[-_FINISH.size - length : -_FINISH.size]
    pages = data[: -_FINISH.size - length]
    if rng.random() < 0.5:
        footer = _envelope(footer, rng)
    else:
        header, body = _taken_apart(footer)
        claims = json.loads(header)
        at = _places(claims)
        table, sums = bytearray(body), at["page.sum"]
        count = (sums[1] - sums[0]) // 16
        page = rng.randrange(count)
        row = at["page.table"][0] + 24 * page
        begin, size, unpacked = struct.unpack_from("<qqq", body, row)
        if rng.random() < 0.4:
            claimed = rng.choice([unpacked, 0, 1, size, 8 * size, 2**20, 2**31 - 1, 2**31, 2**40])
            struct.pack_into("<qqq", table, row, begin, size, claimed)
        else:
            changed = (_words if rng.random() < 0.7 else _bytes)(pages[begin : begin + size], rng)[:size].ljust(
                size, b"\0"
            )
            pages = pages[:begin] + changed + pages[begin + size :]
            table[sums[0] + 16 * page : sums[0] + 16 * page + 16] = mmh3.mmh3_x64_128_digest(changed)
        footer = _sealed(header, bytes(table))
    return pages + footer + _FINISH.pack(len(footer), end)


def _taken_apart(data: bytes) -> tuple[bytes, bytes]:
    """Header and body of an envelope."""
    _, _, header, _ = _PREFIX.unpack_from(data)
    return data[_FIRST : _FIRST + header], data[_FIRST + header :]


def _sealed(header: bytes, body: bytes) -> bytes:
    """The envelope of these, its checksum right."""
    header += b" " * (-len(header) % 8)
    prefix = _PREFIX.pack(b"\x89NILE\r\n\x1a", 1, len(header), len(body))
    return prefix + blake2b(prefix + header + body, digest_size=32).digest() + header + body


def _places(claims: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """Where in the body each array lies."""
    out, at = {}, 0
    for entry in claims["arrays"]:
        size = int(entry["dtype"][2:])
        for side in entry["shape"]:
            size *= side
        out[entry["name"]] = (at, at + size)
        at += size + -size % 8
    return out


def _arrays(claims: dict[str, Any], body: bytes) -> list[bytes]:
    return [body[begin:end] for begin, end in _places(claims).values()]


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 8)


def _change(value: Any, rng: Random) -> None:
    """Change one thing anywhere inside a JSON value, in place."""
    spots: list[tuple[Any, Any]] = []

    def collect(inner: Any) -> None:
        for key in inner if isinstance(inner, dict) else range(len(inner)):
            spots.append((inner, key))
            if isinstance(inner[key], dict | list):
                collect(inner[key])

    if isinstance(value, dict | list):
        collect(value)
    if not spots:
        return
    inner, key = rng.choice(spots)
    held = inner[key]
    what = rng.random()
    if what < 0.15 and isinstance(inner, dict):
        del inner[key]
    elif what < 0.25:
        other, place = rng.choice(spots)
        inner[key] = json.loads(json.dumps(other[place] if place in other or isinstance(other, list) else None))
    elif what < 0.7 and isinstance(held, int | float):
        inner[key] = rng.choice([held + 1, held - 1, -held, 2 * held, rng.choice(_NUMBERS)])
    elif what < 0.5 and isinstance(held, str):
        inner[key] = rng.choice([held[:-1], held + "x", held.upper(), held * 2, ""])
    else:
        inner[key] = rng.choice(_NUMBERS + _OTHERS)


def _words(data: bytes, rng: Random) -> bytes:
    """Change whole numbers of 1, 2, 4 or 8 bytes."""
    out = bytearray(data)
    if not out:
        return data
    for _ in range(rng.choice([1, 1, 1, 3, 10])):
        size = rng.choice([s for s in (1, 2, 4, 8) if s <= len(out)])
        at = rng.randrange(0, len(out) - size + 1)
        at -= at % size
        held = int.from_bytes(out[at : at + size], "little")
        new = rng.choice([0, 1, held + 1, held - 1, held * 2, -1, 1 << (8 * size - 1), (1 << (8 * size - 1)) - 1,
                          rng.getrandbits(8 * size)])  # fmt: skip
        out[at : at + size] = (new % (1 << 8 * size)).to_bytes(size, "little")
    return bytes(out)


def _bytes(data: bytes, rng: Random) -> bytes:
    """Flip, cut, repeat or insert bytes."""
    if not data:
        return b"\0"
    at, n = rng.randrange(len(data)), rng.choice([1, 2, 8, 64])
    what = rng.randrange(5)
    if what == 0:
        return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]
    if what == 1:
        return data[:at]
    if what == 2:
        return data[:at] + data[at + n :]
    return data[:at] + (data[at : at + n] * 2 if what == 3 else rng.randbytes(n)) + data[at + n :]
