"""Golden files: one of each kind that Nile writes, as each released version wrote it, to be read for ever.

`python tests/harness/golden_files.py` writes those of the version at hand into tests/golden/v<VERSION>/.  Those of a
released version are never written again: a change of a byte form needs a new VERSION and a reader for the old one.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa

from nile.pyramid.disk import StoredFile, StoreDirectory
from nile.pyramid.disk.manifest import pack_generation, read_generation
from nile.pyramid.grid.manager import SummaryManager
from nile.pyramid.grid.manager_state import manager_bytes, read_manager
from nile.pyramid.grid.spec import SummarySpec
from nile.pyramid.history.pages import PageFile, PageWriter
from nile.summaries.catalogue import CATALOGUE, make_summary, read_summary
from nile.summaries.envelope import VERSION, pack, unpack

GOLDEN = Path(__file__).parents[1] / "golden"
WHEN = "2026-11-22T05:00:00Z"
KEYS = (np.arange(40, dtype=np.uint64) % 7 + 1) * np.uint64(0x9E3779B97F4A7C15)
DTYPES = ("|b1", "|i1", "|u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8", "<f4", "<f8")
FILES = (
    StoredFile("data/00000006-00003-zone", "zone", 5, "ab" * 32),
    StoredFile("lake/s=1/00000007-00004-cold.parquet", "cold", 0, "cd" * 32, sealed=True),
)
STATE: dict[str, Any] = {"streams": {"s": {"tuples": 3}}, "name": "häuser", "list": [1, 2.5, None, True]}


@dataclass(frozen=True)
class Golden:
    """write: the bytes today; read: what they say, as plain values; expected: what they must say.

    same: writing gives the same bytes on every machine, so that a change of the form is noticed.
    """

    write: Callable[[], bytes]
    read: Callable[[bytes], Any]
    expected: Callable[[], Any]
    same: bool = True


def arrays() -> dict[str, np.ndarray[Any, Any]]:
    """One array of each dtype, one without entries, one without sides."""
    made = {dtype: (np.arange(6) % 2).astype(dtype).reshape(2, 3) for dtype in DTYPES}
    return {**made, "none": np.zeros((0, 4), np.float32), "one": np.array(-7)}


def plain(data: bytes) -> Any:
    """An envelope as plain values."""
    held = unpack(data)
    return held.kind, dict(held.params), {name: (a.dtype.str, a.tolist()) for name, a in held.arrays.items()}


def summary(kind: str) -> Golden:
    """A summary of 40 tuples, by what it answers."""

    def made() -> Any:
        result = make_summary(kind, **({"rows": 3, "columns": 16} if kind == "countsketch" else {}))
        result.summarize(KEYS)
        return result

    def answers(of: Any) -> Any:
        told = of.estimate(np.unique(KEYS))
        return of.kind, of.describe(), of.total, told.value.tolist(), told.low.tolist(), told.high.tolist()

    return Golden(
        lambda: made().to_bytes(),
        lambda data: answers(read_summary(data)),
        lambda: answers(made()),
        same=kind not in ("frequent", "hll"),  # these hold the bytes of a library
    )


def manager() -> SummaryManager:
    """A manager that has closed zones."""
    spec = SummarySpec(granularity=1000, rate=2, depth=2, structure="T3", buckets=2, rows=2, columns=4)
    made = SummaryManager(spec)
    made.ingest(np.arange(600, dtype=np.int64) * 10, pa.array([f"k{i % 5}" for i in range(600)]))
    return made


def managed(of: SummaryManager) -> Any:
    """What a manager says."""
    return of.store.tuples, of.zones_closed, of.keys.values().to_pylist(), [repr(zone) for zone in of.zones()]


def paged() -> bytes:
    """A file of three pages."""
    writer = PageWriter()
    body = [writer.start(), *writer.page(b"first"), *writer.page(np.arange(9)), *writer.page(bytes(500), squeeze=True)]
    return b"".join(bytes(piece) for piece in [*body, writer.finish("pages", {"n": 3}, {"a": np.arange(3)})])


def pages(data: bytes) -> Any:
    """What a file of pages holds."""
    held = PageFile(memoryview(data), "pages", "golden")
    return dict(held.footer.params), [bytes(held.page(n)) for n in range(held.pages)]


FORMS: dict[str, Golden] = {
    "envelope.nile": Golden(
        lambda: pack("sample", {"flag": True, "n": -5, "text": "häuser"}, arrays()),
        plain,
        lambda: (
            "sample",
            {"flag": True, "n": -5, "text": "häuser"},
            {name: (a.dtype.str, a.tolist()) for name, a in arrays().items()},
        ),
    ),
    "manifest.nile": Golden(
        lambda: pack_generation(7, b'{"n":[1,2.5,null,true]}', FILES, WHEN),
        lambda data: (lambda g: (g.epoch, g.state, g.files, g.written))(read_generation(data, 1, where="golden")),
        lambda: (7, {"n": [1, 2.5, None, True]}, {file.name: file for file in FILES}, WHEN),
    ),
    "pages.nile": Golden(paged, pages, lambda: ({"n": 3}, [b"first", np.arange(9).tobytes(), bytes(500)]), same=False),
    "manager.nile": Golden(
        lambda: manager_bytes(manager()), lambda data: managed(read_manager(unpack(data))), lambda: managed(manager())
    ),
    **{f"summary-{kind}.nile": summary(kind) for kind in sorted(CATALOGUE)},
}


def write_store(root: Path) -> None:
    """A store of three commits, with a file of every kind that a store makes itself."""
    with (
        patch("nile.pyramid.disk.opening.now", lambda: WHEN),
        patch("nile.pyramid.disk.directory.now", lambda: WHEN),
        StoreDirectory.open(root) as store,
    ):
        zone = store.stage("zone", [b"zone", b" of ", b"bytes"])
        for n in (1, 2, 3):
            state = store.stage_envelope("state", "counts", {"n": n}, {"a": np.arange(n)})
            with store.stage_path("cold", suffix=".bin", folder="lake/s=1") as staged:
                staged.path.write_bytes(b"cold %d" % n)
            store.commit({**STATE, "n": n}, [zone, state, staged.file])


def read_store(root: Path) -> Any:
    """What a store says, as plain values."""
    with StoreDirectory.open(root, read_only=True) as store:
        by_role = {file.role: file for file in store.files().values()}
        counts = store.read_envelope(by_role["state"])
        return (
            store.epoch,
            store.written,
            store.recovered,
            dict(store.state),
            {role: bytes(store.read(by_role[role])) for role in ("zone", "cold")},
            (counts.params["n"], counts.arrays["a"].tolist()),
        )


STORE = (3, WHEN, None, {**STATE, "n": 3}, {"zone": b"zone of bytes", "cold": b"cold 3"}, (3, [0, 1, 2]))


def main() -> None:
    """Write the golden files of this version."""
    folder = GOLDEN / f"v{VERSION}"
    folder.mkdir(parents=True, exist_ok=True)
    for name, golden in FORMS.items():
        (folder / name).write_bytes(golden.write())
    with tempfile.TemporaryDirectory() as scratch:
        write_store(Path(scratch) / "store")
        for file in sorted((Path(scratch) / "store").rglob("*")):
            target = folder / "store" / file.relative_to(Path(scratch) / "store")
            if file.is_file() and file.name != "LOCK":
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(file.read_bytes())
    sys.stdout.write(f"{folder}: {sum(1 for file in folder.rglob('*') if file.is_file())} files\n")


if __name__ == "__main__":
    main()
