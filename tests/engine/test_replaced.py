"""Files that are replaced or removed after a source was named: nothing is read for something else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

import nile

ASKED = ("SELECT sum(v) FROM s", "SELECT s.v, i.v FROM s, i WHERE s.k = i.k", "SELECT * FROM r")


def write(path: Path, columns: dict[str, Any]) -> None:
    table = pa.table(columns)
    if path.suffix == ".csv":
        pacsv.write_csv(table, path)
    else:
        pq.write_table(table, path)


def named(path: Path) -> nile.Database:
    write(path, {"at": [1.0, 2.0], "k": ["x", "y"], "v": [5, 6]})
    db = nile.connect()
    db.register("s", path, time="at")
    db.register("r", path)
    db.register("i", {"at": [1.0], "k": ["x"], "v": [1]}, time="at")
    return db


@pytest.mark.parametrize("query", ASKED)
@pytest.mark.parametrize(
    "columns",
    [{"at": [1.0, 2.0], "k": ["x", "y"]}, {"at": [1.0, 2.0], "k": ["x", "y"], "v": ["5", "6"]}],
    ids=["gone", "another type"],
)
def test_columns_that_a_parquet_file_no_longer_has_are_not_read_from_others(
    tmp_path: Path, columns: dict[str, Any], query: str
) -> None:
    """The last column was taken for one that is gone: the sum of v was that of the times."""
    with named(tmp_path / "s.parquet") as db:
        write(tmp_path / "s.parquet", columns)
        with pytest.raises(nile.SourceError, match=r"needed column 'v' of type int64, .* name it again"):
            db.sql(query).fetchall()


def test_columns_that_a_csv_file_no_longer_has_are_told(tmp_path: Path) -> None:
    with named(tmp_path / "s.csv") as db:
        write(tmp_path / "s.csv", {"at": [1.0, 2.0], "k": ["x", "y"]})
        with pytest.raises(nile.SourceError, match="Column 'v'"):
            db.sql(ASKED[0]).fetchall()


def test_a_file_of_the_same_columns_in_another_order_is_read(tmp_path: Path) -> None:
    with named(tmp_path / "s.parquet") as db:
        write(tmp_path / "s.parquet", {"v": [1, 2], "new": [0, 0], "k": ["x", "y"], "at": [1.0, 2.0]})
        assert [db.sql(query).fetchall() for query in ASKED] == [[(3,)], [(1, 1)], [(1.0, "x", 1), (2.0, "y", 2)]]


@pytest.mark.parametrize("query", ASKED)
@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_file_that_is_gone_is_missing(tmp_path: Path, form: str, query: str) -> None:
    path = tmp_path / f"s.{form}"
    with named(path) as db:
        path.unlink()
        with pytest.raises(nile.SourceMissing, match="there is nothing of that name any more"):
            db.sql(query).fetchall()
