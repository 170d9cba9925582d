"""What an answer may take that is held whole: as much as `connect(memory=)` allows, refused before it begins."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import nile
from nile.answers.join_outputs import JoinOutputs
from nile.answers.tabular import with_room_for_text
from nile.base import room
from nile.base.room import LEAST_ROOM, allowed_room, each_within, within
from nile.streams import holding

ROWS = 4_000
"""Of one key in each stream: 16 million pairs of 56 bytes, 14 times of what 64 MB allow."""
MATCH = r"answer: [\d,]+ rows need about [\d,]+ MiB, more than the 64 MiB that connect\(memory=\) allows .*more memory"


def filled(db: nile.Database) -> nile.Database:
    for name in "abc":
        at = np.arange(ROWS)
        db.register(name, pa.table({"t": at, "k": np.zeros(ROWS, np.int64), "n": at}), time="t")
    return db


@pytest.fixture(params=["in memory", "with a store"])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    with nile.connect(*([] if request.param == "in memory" else [tmp_path / "store"]), memory="64MB") as made:
        if request.param == "in memory":
            yield filled(made)
            return
        for name in "abc":
            made.stream(name, [("t", "int64"), ("k", "int64"), ("n", "int64")], time="t")
            at = np.arange(ROWS)
            made.push(name, {"t": at, "k": np.zeros(ROWS, np.int64), "n": at})
        made.advance(10 * ROWS)
        yield made


def test_the_room_of_an_answer_is_that_of_whoever_asked_and_ends_with_the_question() -> None:
    def found() -> Any:
        for _ in range(2):
            yield allowed_room()

    assert [(each, allowed_room()) for each in each_within(7, found())] == [(7, None), (7, None)]
    with within(5):
        with within(None):
            assert allowed_room() is None
        assert allowed_room() == 5
    assert allowed_room() is None


JOINS: dict[str, Callable[[nile.Database], Any]] = {
    "two streams": lambda db: db.join("a", "b", on="k").run().to_arrow(),
    "two streams in a window": lambda db: db.join("a", "b", on="k", window=10_000).run().to_arrow(),
    "two streams to pandas": lambda db: db.join("a", "b", on="k").run().to_pandas(),
    "ranges expanded": lambda db: db.join("a", "b", on="k").returning("ranges").run().expand(),
    "members": lambda db: db.join("a", "b", on="k").run().members(),
    "three streams": lambda db: db.join("a", "b", "c", on="k", window=10_000).run().to_arrow(),
    "again": lambda db: db.join("a", "b", on="k").run(1.0).again().to_arrow(),
    "SQL": lambda db: db.sql("SELECT a.n, b.n AS m FROM a, b WHERE a.k = b.k").to_arrow(),
    "SQL in a window": lambda db: db.sql("SELECT a.n, b.n AS m FROM a, b WHERE a.k = b.k WINDOW 10000").to_arrow(),
    "SQL, three streams": lambda db: db.sql(
        "SELECT a.n, b.n AS m, c.n AS o FROM a, b, c WHERE a.k = b.k AND b.k = c.k"
    ).to_arrow(),
    "SQL in Python values": lambda db: db.sql("SELECT a.n, b.n AS m FROM a, b WHERE a.k = b.k").fetchall(),
    "SQL by preference": lambda db: db.sql(
        "SELECT a.n, b.n AS m FROM a, b WHERE a.k = b.k WITH PREFERENCE desc a.k WINDOW 10000 BUDGET 100 %"
    ).to_arrow(),
    "SQL under an aggregate": lambda db: db.sql(
        "SELECT count(*) FROM (SELECT a.n, b.n AS m FROM a, b WHERE a.k = b.k ORDER BY a.n + b.n) q WHERE q.n <> q.m"
    ).fetchall(),
}


@pytest.mark.parametrize("name", JOINS)
def test_joins_that_memory_does_not_allow_are_refused_before_they_begin(
    db: nile.Database, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "preference" not in name:  # how long that will be only the run tells
        monkeypatch.setattr(JoinOutputs, "outputs", lambda _: pytest.fail("it has begun"))
    with pytest.raises(nile.MemoryRefused, match=MATCH):
        JOINS[name](db)


def test_what_is_read_in_pieces_or_counted_needs_no_room(db: nile.Database) -> None:
    join = db.join("a", "b", on="k", window=10_000)
    assert join.run().estimate.value == ROWS * ROWS
    rows = 0
    for batch in join.run().batches():
        rows += batch.num_rows
        if rows > 2_000_000:
            break
    assert rows > 2_000_000
    text = "SELECT count(*) AS n, sum(a.n) AS s FROM a, b WHERE a.k = b.k"
    assert db.sql(text).fetchall() == [(ROWS * ROWS, ROWS * ROWS * (ROWS - 1) // 2)]
    assert sum(batch.num_rows for batch in db.sql("SELECT a.n FROM a, b WHERE a.k = b.k").batches()) == ROWS * ROWS
    assert db.sql("SELECT a.n, b.n AS m FROM a, b WHERE a.k = b.k LIMIT 10").to_arrow().num_rows == 10


def test_selections_and_rows_are_refused_once_they_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """And all of their room is that of the database: another one may have more."""
    monkeypatch.setattr("nile.engine.connect.LEAST_ROOM", 100_000)
    with nile.connect(memory="100kB") as db, nile.connect() as other:
        for each in (filled(db), filled(other)):
            assert each.sql("SELECT n FROM a WHERE n < 3000").to_arrow().num_rows == 3_000
        for text in (
            "SELECT t, k, n, n + 1 AS m FROM a",
            "SELECT t, k, n, n + 1 AS m FROM a ORDER BY m",
            "SELECT t, k, n FROM a UNION ALL SELECT t, k, n FROM b",
        ):
            with pytest.raises(nile.MemoryRefused, match="allows an answer"):
                db.sql(text).to_arrow()
            assert other.sql(text).to_arrow().num_rows >= ROWS
        with pytest.raises(nile.MemoryRefused, match="allows an answer"):
            db.sql("SELECT n FROM a").fetchall()
        selection = [each.select("a", on="k", predicates={"q": "k = 0"}).run(1.0) for each in (db, other)]
        with pytest.raises(nile.MemoryRefused, match="allows an answer"):
            selection[0].to_arrow()
        assert selection[1].to_arrow().num_rows == ROWS


def test_an_answer_may_take_as_much_as_memory_says_and_64_mib_in_any_case(tmp_path: Path) -> None:
    assert nile.connect()._names.room is None
    assert nile.connect(memory="200kB")._names.room == LEAST_ROOM == room.LEAST_ROOM
    with nile.connect(tmp_path / "store", memory="256MB") as db:
        assert db._names.room == 256_000_000
        assert db._names.snapshot().room == 256_000_000


def test_what_must_be_held_whole_and_is_too_much_lies_in_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a file, of rows that a store keeps; a table that is in memory takes no more of it."""
    at = np.arange(ROWS)
    table = pa.table({"t": at, "k": pa.array((at % 7).astype(str)).dictionary_encode(), "n": at})
    pq.write_table(table, tmp_path / "a.parquet")
    db = nile.connect().register("a", tmp_path / "a.parquet", time="t").register("b", table, time="t")
    db.stream("c", [("t", "int64"), ("k", "string"), ("n", "int64")], time="t")
    db.push("c", table)
    db.register("r", tmp_path / "a.parquet").register("s", table)
    text = "SELECT x.n, y.n AS m FROM {0} x, {0} y WHERE x.k = y.k AND x.n = y.n"
    asked: list[Callable[[str], pa.Table]] = [lambda name: db.sql(text.format(name)).to_arrow()]
    asked.append(lambda name: db.join(f"{name} AS x", f"{name} AS y", on="n", where="x.k <= y.k").run().to_arrow())
    wanted = [ask("b") for ask in asked]
    files: list[Any] = []
    opener = holding.temporary_file
    monkeypatch.setattr(holding, "temporary_file", lambda folder: files.append(opener(folder)) or files[-1])
    monkeypatch.setattr("nile.streams.holding.memory_bytes", lambda: 2 * 8 * ROWS)
    for name in "ac":
        for ask, rows in zip(asked, wanted, strict=True):
            files.clear()
            assert ask(name).equals(rows)
            assert len(files) >= 3
            assert all(file.closed for file in files)
    files.clear()
    assert db.sql(text.format("r")).to_arrow().num_rows == ROWS
    assert files
    files.clear()
    for name in "bs":
        assert db.sql(text.format(name)).to_arrow().num_rows == ROWS
    assert not files


def test_what_no_file_can_stand_in_for_is_refused_beyond_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = np.arange(ROWS)
    pq.write_table(pa.table({"t": at, "n": at, "l": [[k] for k in range(ROWS)]}), tmp_path / "a.parquet")
    db = nile.connect().register("a", tmp_path / "a.parquet", time="t").register("r", tmp_path / "a.parquet")
    text = "SELECT x.l, y.n FROM {0} x, {0} y WHERE x.n = y.n"
    for name in "ar":
        assert db.sql(text.format(name)).to_arrow().num_rows == ROWS
    monkeypatch.setattr("nile.streams.holding.memory_bytes", lambda: 2 * 8 * ROWS)
    for name in "ar":
        with pytest.raises(nile.MemoryRefused, match=r"all of its rows in memory; got 4,000 .* with column '.*l'"):
            db.sql(text.format(name)).to_arrow()


def test_a_full_disk_of_held_rows_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pq.write_table(pa.table({"t": np.arange(ROWS), "n": np.arange(ROWS)}), tmp_path / "a.parquet")
    db = nile.connect().register("a", tmp_path / "a.parquet", time="t")

    def full(folder: Path | None) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device", folder)

    monkeypatch.setattr(holding, "temporary_file", full)
    monkeypatch.setattr("nile.streams.holding.memory_bytes", lambda: 2 * 8 * ROWS)
    with pytest.raises(nile.MemoryRefused, match=r"stream 'a': needed all of its rows, in files .* 'No space left"):
        db.sql("SELECT x.n FROM a x, a y WHERE x.n = y.n").to_arrow()


def test_more_text_than_arrow_numbers_is_refused_by_name() -> None:
    """Arrow's own sentences, of putting together and of joining; `long` makes the text."""

    def overflows(told: str) -> Any:
        yield 1
        raise pa.ArrowInvalid(told)

    for told in (
        "offset overflow while concatenating arrays, consider casting input from `string` to `large_string` first.",
        "array cannot contain more than 2147483646 bytes, have 2200000000",
    ):
        found = with_room_for_text(overflows(told))
        assert next(found) == 1
        with pytest.raises(nile.MemoryRefused, match="less than 2 GiB of each column of text"):
            next(found)
    with pytest.raises(pa.ArrowInvalid, match="another"):
        list(with_room_for_text(overflows("another")))


@pytest.mark.long
@pytest.mark.parametrize("text", ["SELECT string_agg(s, ',') AS l FROM d", "SELECT list(s) AS l FROM d"])
def test_two_gigabytes_of_text_in_one_value_are_refused_by_name(text: str) -> None:
    def rows() -> Any:
        for k in range(0, 2_200, 100):
            yield pa.record_batch({"t": np.arange(k, k + 100), "s": pa.array(["x" * 1_000_000] * 100)})

    schema = pa.schema([("t", pa.int64()), ("s", pa.string())])
    db = nile.connect().register("d", pa.RecordBatchReader.from_batches(schema, rows()), time="t")
    with pytest.raises(nile.MemoryRefused, match="less than 2 GiB"):
        db.sql(text).fetchall()
