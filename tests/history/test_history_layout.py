"""What files a history has, and their bytes, follow from its rows: not from when and how it was written."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from nile.pyramid.disk.directory import StoreDirectory
from nile.pyramid.history import rows_store
from nile.pyramid.history.history import History
from nile.pyramid.history.key_digest import distinct
from nile.pyramid.history.keys import HotIndex
from nile.pyramid.history.layout import index_runs, rows_runs
from nile.pyramid.history.merge import merged_parts
from nile.pyramid.history.zone_file import zone_file

SCHEMA = pa.schema([("key", pa.string()), ("value", pa.float64())])
SEGMENT, LARGEST = 512, 8_192


@pytest.fixture
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of 1,024 rows, sixteen of which become one: the ratios of the real sizes."""
    for name, rows in (("AHEAD", 1_024), ("SMALL", 1_024), ("LARGE", 4_096)):
        monkeypatch.setattr(rows_store, name, rows)
        monkeypatch.setattr(f"nile.pyramid.history.layout.{name}", rows, raising=False)


def batch(seed: int, first: int, n: int) -> tuple[np.ndarray[Any, Any], pa.RecordBatch]:
    """Rows first..first + n - 1 of a stream: they depend on the seed and their ordinals alone."""
    ordinals = np.arange(first, first + n, dtype=np.int64)
    keys = ((ordinals * 2_654_435_761 + seed) >> 7) % 997
    text = pa.array([None if key % 31 == 0 else f"k{key}" for key in keys.tolist()], pa.string())
    return ordinals * 10, pa.RecordBatch.from_arrays([text, pa.array(keys / 8)], schema=SCHEMA)


@pytest.mark.usefixtures("small_files")
@pytest.mark.parametrize("seed", range(8))
def test_the_files_of_a_history_written_at_once_are_those_foretold(tmp_path: Path, seed: int) -> None:
    source = random.Random(seed)
    tuples = source.randrange(1, 45_000)
    with StoreDirectory.open(tmp_path / "store") as directory:
        history = History("s", SCHEMA, directory=directory, indexed=["key"], segment=SEGMENT, largest=LARGEST)
        while history.tuples < tuples:
            history.append(*batch(seed, history.tuples, min(source.randrange(1, 5_000), tuples - history.tuples)))
        history.settle()
        history.stage()
        found = history.info()
    rows = [(part["first"], part["first"] + part["tuples"]) for part in found if part["kind"] == "rows"]
    stored = sorted({(file.first, file.end) for file in history._rows.files})
    assert stored == rows_runs(tuples, SEGMENT, LARGEST)
    assert rows[-1][1] == tuples
    sealed = [(part["first"], part["first"] + part["tuples"]) for part in found if part["kind"] == "index"]
    assert [run for run in sealed if (run[1] - run[0]) % SEGMENT == 0] == index_runs(tuples, SEGMENT, LARGEST)


@pytest.mark.parametrize("seed", range(6))
def test_which_indices_there_are_does_not_depend_on_when_they_were_merged(tmp_path: Path, seed: int) -> None:
    source = random.Random(seed)
    tuples = source.randrange(1, 100) * SEGMENT
    with StoreDirectory.open(tmp_path / "store") as directory:
        memory = source.choice((None, 1, 400_000))
        history = History("s", SCHEMA, directory=directory, indexed=["key"], memory=memory, segment=SEGMENT,
                          largest=LARGEST)  # fmt: skip
        while history.tuples < tuples:
            history.append(*batch(seed, history.tuples, min(source.randrange(1, 9_000), tuples - history.tuples)))
            if source.random() < 0.3:
                history.settle()
        history.settle()
        assert [(index.first, index.end) for index in history.indices("key")] == index_runs(tuples, SEGMENT, LARGEST)


@pytest.mark.parametrize("kind", [pa.string(), pa.int32(), pa.bool_(), pa.decimal128(14, 2)])
def test_a_zone_file_has_the_same_bytes_however_its_index_was_put_together(kind: pa.DataType) -> None:
    source = np.random.default_rng(3)
    values = source.integers(0, 6_000, 20_000)
    column = pa.array(values.astype(np.int32)).cast(kind) if kind != pa.bool_() else pa.array(values % 3 == 0)
    column = pa.array([None if v % 17 == 0 else x for v, x in zip(values.tolist(), column.to_pylist(), strict=True)],
                      kind)  # fmt: skip
    schema = pa.schema([("key", kind)])
    history = History("s", schema, indexed=["key"], segment=20_224, largest=20_224)
    history.append(np.arange(20_000, dtype=np.int64), pa.RecordBatch.from_arrays([column], schema=schema))
    (whole,) = history.indices("key")
    assert isinstance(whole, HotIndex)
    cuts = [0, *sorted(source.choice(20_000, 5, replace=False).tolist()), 20_000]
    children = []
    for low, high in itertools.pairwise(cuts):
        part = History("s", schema, indexed=["key"], segment=20_224, largest=20_224)
        part.append(np.arange(low, high, dtype=np.int64), pa.RecordBatch.from_arrays([column[low:high]], schema=schema))
        (index,) = part.indices("key")
        index.first = low
        children.append(index)

    def written(parts: Any) -> bytes:
        return b"".join(map(bytes, zone_file("key", kind, 0, 20_000, 0, 19_999, parts, distinct(whole.hashes))))

    expected = written([whole.part(0, 1, 1)])
    for step in (1, 700, 1 << 19):
        assert written(merged_parts(children, step)) == expected
    assert written([whole.part(b, b + 1, whole.buckets) for b in range(whole.buckets)]) == expected
