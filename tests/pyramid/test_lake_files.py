"""A lake's stream as files for the exact jobs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from nile.pyramid.lake.lake import LakeStream, Layout, write_part
from nile.spark import tuple_files
from nile.summaries.errors import SourceError, SourceMissing, StoreCorrupt, UnknownColumn


def test_the_files_of_a_stream_are_those_of_its_manifest_and_are_looked_at_first(tmp_path: Path) -> None:
    schema = pa.schema([("item", pa.int64()), ("price", pa.float64())])
    with pytest.raises(SourceMissing, match="there is no such directory"):
        tuple_files(tmp_path / "gone", "shop")
    stream = LakeStream.create(tmp_path, Layout("shop", "ts", "item", schema))
    with pytest.raises(SourceError, match="'shop' has no tuples yet; `nile ingest` adds some"):
        tuple_files(tmp_path, "shop")
    with stream.writing() as now:
        table = pa.table({"item": [1, 2], "price": [0.5, None]}, schema=schema)
        file = now.staging() / "a.parquet"
        stream = now.commit([(file, write_part(file, np.arange(2), np.arange(2), table, "item"))], {"id": "a"})
    (stream.path / "day=1970-01-01" / "part-stray.parquet").write_bytes(b"not named")
    files = tuple_files(tmp_path, "shop", key="price")
    assert (files.name, files.key, files.ordinal, files.ts) == ("shop", "price", "_ordinal", "_ts")
    assert files.files == (stream.path / stream.parts[0].name,)
    with pytest.raises(UnknownColumn, match="has no column 'prize'; it has item, price"):
        tuple_files(tmp_path, "shop", key="prize")
    data = bytearray(files.files[0].read_bytes())
    data[-20] ^= 1
    files.files[0].write_bytes(data)
    with pytest.raises(StoreCorrupt, match="the footer that was written"):
        tuple_files(tmp_path, "shop")
