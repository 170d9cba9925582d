"""Folders called `column=value` on Spark: the columns that they give without it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

import nile
from nile.pyramid.lake.lake import ORDINAL
from nile.spark import ingest
from nile.spark.ingesting.prepare import PrepareSpec, prepare

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

FOLDERS = (("n=1", "day=2024-01-01", "at=2024-01-01 00%3A00%3A05"), ("n=2", "day=2024-02-01", "at=2024-01-02 01%3A00"))


def written(folder: Path, kind: str) -> Path:
    for number, each in enumerate(FOLDERS):
        place = folder.joinpath("it's", *each)
        place.mkdir(parents=True)
        table = pa.table({"ts": [number + 0.25, number + 0.5], "item": ["a", "b"], "n": [7, 7]})
        if kind == "csv":
            pacsv.write_csv(table, place / "x.csv")
        elif kind == "json":
            (place / "x.json").write_text(
                "".join(f'{{"ts": {r["ts"]}, "item": "{r["item"]}"}}\n' for r in table.to_pylist())
            )
        else:
            pq.write_table(table, place / "x.parquet")
    return folder / "it's"


@pytest.mark.parametrize("kind", ["parquet", "csv", "json"])
@pytest.mark.parametrize("named", ["folder", "pattern", "file"])
def test_ingest_reads_what_a_registered_stream_does(spark: SparkSession, tmp_path: Path, kind: str, named: str) -> None:
    folder = written(tmp_path / "in", kind)
    source = {
        "folder": str(folder),
        "pattern": f"{folder}/**/*.{kind}",
        "file": str(next(folder.glob(f"n=2/**/x.{kind}"))),
    }[named]
    done = ingest(source, tmp_path / "lake", stream="shop", time="ts", key="item", spark=spark)
    names = ["ts", "item", "n", "day", "at"]
    found = pa.concat_tables(list(done.stream.read([ORDINAL, *names]))).sort_by(ORDINAL).select(names)
    assert {str(found.schema.field(name).type) for name in ("n", "at")} == {"int64", "timestamp[us]"}
    if kind == "json":  # none without Spark
        assert found.column("n").to_pylist() == ([2, 2] if named == "file" else [1, 1, 2, 2])
        return
    with nile.connect() as db:
        db.register("shop", source, time="ts")
        wanted = db.sql("SELECT ts, item, n, day, at FROM shop").fetchall()
    assert len(wanted) == (2 if named == "file" else 4)
    rows = [tuple(row[name] for name in names) for row in found.to_pylist()]
    assert [(*row[:4], row[4]) for row in rows] == [(*row[:4], row[4].replace(tzinfo=None)) for row in wanted]


def test_a_prepared_stream_may_have_such_a_column_for_its_key(spark: SparkSession, tmp_path: Path) -> None:
    file = next(written(tmp_path / "in", "parquet").glob("n=2/**/x.parquet"))
    done = prepare(spark, PrepareSpec("shop", file, "ts", "day", None), tmp_path / "out")
    table = pq.read_table(next(done.path.glob("part-*.parquet")))
    assert [str(key) for key in table.column("key").to_pylist()] == ["2024-02-01"] * 2
    assert done.rejected == {}


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_files_may_have_their_columns_in_any_order(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    for at, names in enumerate((("ts", "item"), ("item", "ts"))):
        table = pa.table({name: [float(at)] if name == "ts" else ["a"] for name in names})
        file = str(tmp_path / f"{at}.{kind}")
        pq.write_table(table, file) if kind == "parquet" else pacsv.write_csv(table, file)
    done = ingest(f"{tmp_path}/*.{kind}", tmp_path / "lake", stream="shop", time="ts", key="item", spark=spark)
    found = pa.concat_tables(list(done.stream.read(["ts", "item"])))
    assert sorted(found.column("ts").to_pylist()) == [0, 1]
    assert found.column("item").to_pylist() == ["a", "a"]
