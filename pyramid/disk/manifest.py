"""What a generation of a store is: its number, its state, and every file it needs, in one checked envelope.

manifest-<epoch % 2> is an envelope of kind "manifest": params {epoch, format, written}, arrays `files` (JSON
[[name, role, length, digest, sealed], ...]) and `state` (JSON), both as UTF-8 bytes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NoReturn

import numpy as np

from nile.summaries.envelope import Envelope, pack, unpack
from nile.summaries.errors import EnvelopeError, StoreTooNew

__all__ = ["FORMAT", "MANIFESTS", "Generation", "StoredFile", "is_own_name", "pack_generation", "read_generation"]

FORMAT = 1  # of the directory; the envelopes in it carry their own version
MANIFESTS = ("manifest-0", "manifest-1")
ESSENTIAL = "state"  # files whose role begins so are verified when a store is opened: without them nothing can go on
_TOP = 1 << 62
ROLE = re.compile(r"[a-z][a-z0-9_-]{0,31}")
SUFFIX = re.compile(r"(\.[a-z0-9]{1,12}){0,2}")
FOLDER = re.compile(r"lake(/[A-Za-z0-9_=,%+-][A-Za-z0-9_=.,%+-]{0,199}){0,12}")
_BASE = re.compile(r"(\d{8,19})-(\d{5,19})-[a-z][a-z0-9_-]{0,31}(\.[a-z0-9]{1,12}){0,2}")
TMP = ".tmp"


@dataclass(frozen=True, slots=True)
class StoredFile:
    """An immutable file of a store.

    name: relative to the store; role: what it is for; length: bytes; digest: BLAKE2b-256 in hex, of the whole file,
    or, where `sealed`, the checksum inside the envelope that the file is, which covers all the rest of it.
    """

    name: str
    role: str
    length: int
    digest: str
    sealed: bool = False

    @property
    def essential(self) -> bool:
        """Whether a generation is of no use without this file: its role begins with "state"."""
        return self.role.startswith(ESSENTIAL)


@dataclass(frozen=True, slots=True)
class Generation:
    """One committed state of a store.  written: UTC, ISO 8601."""

    epoch: int
    state: Mapping[str, Any]
    files: Mapping[str, StoredFile]
    written: str = field(default="", compare=False)

    @property
    def manifest(self) -> str:
        """The name of the file that describes it."""
        return MANIFESTS[self.epoch % 2]


def is_own_name(name: str) -> tuple[int, int] | None:
    """(epoch, number) of a file that a store made, from its name relative to the store; None for any other."""
    folder, _, base = name.removesuffix(TMP).rpartition("/")
    if folder != "data" and not FOLDER.fullmatch(folder):
        return None
    found = _BASE.fullmatch(base)
    return (int(found[1]), int(found[2])) if found else None


def now() -> str:
    """The time for `written`."""
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def plain_state(state: Mapping[str, Any]) -> tuple[Mapping[str, Any], bytes]:
    """What a reopened store would hold for this state, and its bytes.  Raises TypeError or ValueError for no JSON."""
    if not isinstance(state, Mapping):
        raise TypeError(f"a {type(state).__name__}")
    data = json.dumps(dict(state), sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")
    return _json(data), data


def pack_generation(epoch: int, state: bytes, files: Iterable[StoredFile], written: str) -> bytes:
    """The bytes of a manifest."""
    rows = [[f.name, f.role, f.length, f.digest, f.sealed] for f in sorted(files, key=lambda f: f.name)]
    listed = json.dumps(rows, separators=(",", ":")).encode("ascii")
    return pack(
        "manifest",
        {"epoch": epoch, "format": FORMAT, "written": written},
        {"files": np.frombuffer(listed, np.uint8), "state": np.frombuffer(state, np.uint8)},
    )


def read_generation(data: bytes, slot: int, *, where: str) -> Generation:
    """The generation that manifest-<slot> describes.

    Raises EnvelopeError when it is damaged, StoreTooNew or EnvelopeTooNew when it is intact and of a newer Nile.
    """
    envelope = unpack(data, where=where)
    if envelope.kind != "manifest":
        _refuse(where, "an envelope of kind 'manifest'", repr(envelope.kind))
    form = envelope.integer("format", 1, _TOP)
    if form > FORMAT:
        raise StoreTooNew(f"{where}: needed a store of format {FORMAT} or older; got format {form}; upgrade Nile")
    epoch = envelope.integer("epoch", 0, _TOP)
    if epoch % 2 != slot:
        _refuse(where, f"an {'odd' if slot else 'even'} epoch in {MANIFESTS[slot]}", f"epoch {epoch}")
    written = envelope.params.get("written")
    state = _member(envelope, "state")
    if not isinstance(state, dict) or not isinstance(written, str):
        _refuse(where, "a state that is an object and a time that is text", type(state).__name__)
    files = {file.name: file for file in _listed(_member(envelope, "files"), where)}
    return Generation(epoch, state, files, written)


def _listed(rows: Any, where: str) -> Iterable[StoredFile]:
    seen = set()
    for row in rows if isinstance(rows, list) else _refuse(where, "a list of files", type(rows).__name__):
        if not isinstance(row, list) or len(row) != 5:
            _refuse(where, "name, role, length, digest and sealed for each file", repr(row)[:60])
        name, role, length, digest, sealed = row
        # Names come from bytes anyone could have written: none may point outside the store.
        if not isinstance(name, str) or is_own_name(name) is None or name.endswith(TMP) or name in seen:
            _refuse(where, "a store's own file name, once", repr(name)[:60])
        if not isinstance(role, str) or not ROLE.fullmatch(role) or type(length) is not int or not 0 <= length < _TOP:
            _refuse(where, f"a role and a length for {name}", repr(row)[:60])
        if not isinstance(digest, str) or not re.fullmatch("[0-9a-f]{64}", digest) or not isinstance(sealed, bool):
            _refuse(where, f"a BLAKE2b-256 for {name}", repr(row)[:60])
        seen.add(name)
        yield StoredFile(name, role, length, digest, sealed)


def _member(envelope: Envelope, name: str) -> Any:
    data = envelope.array(name, "|u1", (None,)).tobytes()
    try:
        return _json(data)
    except (ValueError, RecursionError) as error:
        _refuse(envelope.where, f"JSON in {name}", type(error).__name__)


def _json(data: bytes) -> Any:
    return json.loads(data.decode("ascii"), parse_constant=_no_constants)


def _no_constants(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _refuse(where: str, needed: str, came: str) -> NoReturn:
    raise EnvelopeError(f"{where}: needed {needed}; got {came}; the writer was not Nile, or meant harm; do not use it")
