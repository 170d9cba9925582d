"""Files of rows and of key indices of every released version are read forever.

`python tests/history/test_history_golden.py` writes those of the version at hand; one that changes the format adds a
folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from nile.pyramid.disk.manifest import StoredFile
from nile.pyramid.history.cold import _digest
from nile.pyramid.history.history import History, plain_schema
from nile.pyramid.history.key_digest import KeyDigest, distinct
from nile.pyramid.history.pages import VERSION, blocks
from nile.pyramid.history.rows_file import StoredRows, rows_file
from nile.pyramid.history.warm_index import WarmIndex
from nile.pyramid.history.zone_file import zone_file
from nile.summaries.errors import StoreCorrupt, StoreTooNew

GOLDEN = Path(__file__).parents[1] / "golden"
FOLDERS = {1: GOLDEN / "v1", 2: GOLDEN / "pages-2", 3: GOLDEN / "pages-3"}
FOLDER = FOLDERS[VERSION]
VERSIONS = [*FOLDERS]
N = 2_500


def rows() -> tuple[np.ndarray, pa.RecordBatch]:
    """The rows that the files hold: made without chance."""
    i = np.arange(N, dtype=np.int64)
    ts = 1_291_190_400_000_000_000 + (i // 3) * 1_000_000_000
    key = pa.array([f"item {(int(n) * n) % 701}" for n in i], mask=i % 97 == 0)
    decimals = pa.array(i % 1_000).cast(pa.decimal128(21, 2))
    flags = pa.array(i % 5 == 0, mask=i % 11 == 0)
    nested = pa.array([[int(n), None] if n % 2 else None for n in i], pa.list_(pa.int16()))
    columns = [key, pa.array(i * 7919 % 1_000), pa.array(i / 8), decimals, flags, nested]
    return ts, pa.RecordBatch.from_arrays(columns, names=["key", "number", "real", "money", "flag", "list"])


class Folder:
    """Gives files as a store does."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def map(self, file: StoredFile) -> memoryview:
        """The bytes."""
        return memoryview(self.data[: file.length])


def opened(kind: str, data: bytes) -> Any:
    """The rows or the index that bytes hold."""
    file = StoredFile(f"{kind}.nile", f"history-{kind}", len(data), "0" * 64)
    folder: Any = Folder(data)
    return StoredRows(folder, file, plain_schema(rows()[1].schema)) if kind == "rows" else WarmIndex(folder, file)


def made() -> dict[str, bytes]:
    """The files of this version."""
    ts, batch = rows()
    history = History("s", batch.schema, indexed=["key"])
    history.append(ts, batch)
    index = history.indices("key")[0]
    zone = zone_file("key", pa.string(), 0, N, index.since, index.until, [index.part(0, 1, 1)], distinct(index.hashes))
    return {
        "rows": b"".join(blocks(rows_file(0, plain_schema(batch.schema), [(ts, batch)]))),
        "zone": b"".join(blocks(zone)),
    }


def of_version(version: int | str, kind: str) -> bytes:
    """The file of a kind as a version wrote it, or as it is written now."""
    return made()[kind] if isinstance(version, str) else (FOLDERS[version] / f"{kind}.nile").read_bytes()


@pytest.mark.parametrize("version", [*VERSIONS, "new"])
def test_rows_of_every_version_are_read(version: int | str) -> None:
    data = of_version(version, "rows")
    ts, batch = rows()
    stored = opened("rows", data)
    assert (stored.first, stored.tuples, stored.since, stored.until) == (0, N, int(ts[0]), int(ts[-1]))
    assert stored.times(0, N).tolist() == ts.tolist()
    assert stored.slice(0, N, batch.schema.names).equals(batch)


@pytest.mark.parametrize("version", [*VERSIONS, "new"])
def test_an_index_of_every_version_is_read(version: int | str) -> None:
    data = of_version(version, "zone")
    assert int.from_bytes(data[8:12], "little") == (VERSION if version == "new" else version)
    index = opened("zone", data)
    keys = rows()[1].column("key").to_pylist()
    assert index.keys == len({key for key in keys if key is not None})
    seen = 0
    for bucket in range(index.buckets):
        cell = index.cell(bucket)
        for e, value in enumerate(cell.values.to_pylist()):
            mine = cell.positions[cell.starts[e] : cell.starts[e + 1]]
            assert mine.tolist() == [row for row in mine.tolist() if keys[row] == value]
            assert index.bounds(cell.hashes[e : e + 1])[1][0] >= mine.shape[0]
            seen += mine.shape[0]
    assert seen == sum(key is not None for key in keys)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_index_of_every_version_goes_to_the_lake_with_a_digest(version: int) -> None:
    new, old = opened("zone", of_version("new", "zone")), opened("zone", of_version(version, "zone"))
    made = _digest(old)
    assert made.page() == new.summary.page()
    assert (made.most == new.summary.most).all()
    assert (made.about == new.summary.about).all()


@pytest.mark.parametrize("kind", ["rows", "zone"])
def test_a_newer_version_is_refused(kind: str) -> None:
    data = bytearray((FOLDER / f"{kind}.nile").read_bytes())
    data[8:12] = (VERSION + 1).to_bytes(4, "little")
    with pytest.raises(StoreTooNew, match="upgrade Nile"):
        opened(kind, bytes(data))
    with pytest.raises(StoreCorrupt, match="kind"):
        opened("zone" if kind == "rows" else "rows", (FOLDER / f"{kind}.nile").read_bytes())


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", ["rows", "zone"])
def test_every_truncation_and_flips_everywhere_are_refused(kind: str, version: int) -> None:
    """All pages are read.  A flip that changes nothing is one in padding: 4 bytes at the start, ends of pages."""
    good = of_version(version, kind)
    chance = np.random.default_rng(1)
    for length in [*range(200), *chance.integers(0, len(good), 300).tolist(), *range(len(good) - 200, len(good))]:
        with pytest.raises(StoreCorrupt):
            opened(kind, good[:length])
    harmless, whole = 0, read_all(kind, good)
    for at in chance.integers(0, len(good), 150).tolist():
        bad = bytearray(good)
        bad[at] ^= 1 << int(chance.integers(0, 8))
        try:
            assert read_all(kind, bytes(bad)) == whole
            harmless += 1
        except (StoreCorrupt, StoreTooNew):
            continue
    assert harmless <= 4


def read_all(kind: str, data: bytes) -> Any:
    """Everything that a file holds."""
    stored = opened(kind, data)
    if kind == "rows":
        return stored.times(0, N).tolist(), stored.slice(0, N, stored._schema.names)
    part, summary = stored.part(0, 1, 1), stored.summary
    heavy = stored.heavy if stored.lists_heavy else None  # an index of version 1 may have none
    listed = None if heavy is None else (heavy.hashes.tolist(), heavy.counts.tolist(), heavy.keys.values)
    return (listed, part.hashes.tolist(), part.starts.tolist(), part.rows().tolist(), part.values(),
            summary.page() if isinstance(summary, KeyDigest) else summary.codes.tolist())  # fmt: skip


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, content in made().items():
        (FOLDER / f"{name}.nile").write_bytes(content)
