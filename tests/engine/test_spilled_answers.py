"""Answers over more rows than memory holds: the same rows as without a limit, through files that go with the answer."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from judge import fresh_duckdb
from thinning import thinned

import nile
from nile.base import spill as spilling
from nile.base.spill import Spill, Spills
from nile.execution.exact import parting
from nile.execution.exact.parting import apart, parts, row_hashes
from nile.execution.exact.sorting import Sorter, footprint

ROWS = 6_000
ROOM = 200_000
"""Bytes that an answer may take here: an operator works on an eighth, some 300 rows."""


def table(rows: int, seed: int) -> pa.Table:
    """Numbers of all sizes, NaN, both zeros and nulls; keys of few values and of many."""
    rng = np.random.default_rng(seed)
    wild = rng.normal(size=rows) * 10.0 ** rng.integers(-8, 8, rows)
    for special in (np.nan, -0.0, 0.0):
        wild[rng.integers(0, rows, 20)] = special
    texts = [f"x{v}" if v % 7 else None for v in rng.integers(0, 300, rows)]
    return pa.table(
        {
            "t": np.arange(rows),
            "k": pa.array(rng.integers(0, 900, rows), mask=rng.random(rows) < 0.01),
            "s": texts,
            "g": rng.integers(0, 3, rows),
            "f": wild,
            "d": pa.array(rng.integers(0, 40, rows)).cast(pa.int32()),
            "x": np.round(rng.normal(size=rows), 1),
        }
    )


TABLES = {"a": table(ROWS, 1), "b": table(ROWS // 2, 2)}


def opened(memory: str | None = None) -> nile.Database:
    db = nile.connect(memory=memory)
    for name, rows in TABLES.items():
        db.register(name, rows, time="t")
    return db


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> nile.Database:
    monkeypatch.setattr("nile.engine.connect.LEAST_ROOM", ROOM)
    return opened(f"{ROOM}")


QUERIES = [
    "SELECT k, count(*) AS n, sum(f) AS s, avg(f) AS a, min(f) AS lo, max(f) AS hi, median(f) AS m, sum(d) AS sd "
    "FROM a GROUP BY k",
    "SELECT s, x, count(*) AS n FROM a GROUP BY s, x",
    "SELECT k FROM a WHERE k < -1 GROUP BY k",
    "SELECT DISTINCT k, s FROM a",
    "SELECT DISTINCT g FROM a",
    "SELECT DISTINCT f FROM a",
    "SELECT k, d FROM a UNION SELECT k, d FROM b",
    "SELECT k FROM a UNION SELECT k FROM a",
    "SELECT k, d FROM a UNION ALL SELECT k, d FROM b",
    *(
        f"SELECT {columns} FROM a {kind} SELECT {columns} FROM b"
        for columns in ("k, d", "g", "g, x")
        for kind in ("INTERSECT", "INTERSECT ALL", "EXCEPT", "EXCEPT ALL")
    ),
    "SELECT t, k, f, s FROM a ORDER BY f",
    "SELECT t, k, x FROM a ORDER BY x DESC, k",
    "SELECT t, s FROM a ORDER BY s NULLS FIRST, g DESC",
    "SELECT t FROM a ORDER BY k DESC NULLS FIRST, f LIMIT 10 OFFSET 5",
    "SELECT t FROM a ORDER BY x LIMIT 4000",
    "SELECT t, f FROM a ORDER BY t",
    "SELECT t, f FROM a ORDER BY t DESC",
    "SELECT t FROM a ORDER BY g",
    "SELECT t, row_number() OVER (PARTITION BY k ORDER BY x) AS r, sum(d) OVER (PARTITION BY k, g ORDER BY t) AS s "
    "FROM a",
    "SELECT k, n FROM (SELECT k, count(*) AS n FROM a GROUP BY k) q ORDER BY n DESC, k LIMIT 20",
    "SELECT k, count(*) AS n FROM a GROUP BY k HAVING count(*) > 8 ORDER BY k",
    "SELECT a.k, count(*) AS n, sum(a.d + b.d) AS s FROM a, b WHERE a.k = b.k GROUP BY a.k",
    "SELECT a.g, count(*) AS n FROM a, b WHERE a.k = b.k GROUP BY a.g",
    "SELECT DISTINCT a.g, b.d FROM a, b WHERE a.k = b.k",
    "SELECT x.k, x.n, b.d FROM (SELECT k, count(*) AS n FROM a GROUP BY k) x, b WHERE x.k = b.k ORDER BY x.n, b.d, x.k",
    "SELECT a.k, b.x FROM a LEFT JOIN b ON a.k = b.k AND a.d = b.d ORDER BY a.t",
    "SELECT k, count(*) AS n FROM a WHERE k IN (SELECT k FROM b) GROUP BY k",
]
OF_LARGE_GROUPS = [
    "SELECT g, count(*) AS n, count(s) AS c, min(s) AS mi, max(s) AS ma, min(f) AS lo, max(f) AS hi FROM a GROUP BY g",
    "SELECT g, sum(f) AS sf, avg(x) AS ax, stddev(x) AS sx, var_pop(f) AS vf, sum(d) AS sd, avg(d) AS ad "
    "FROM a GROUP BY g",
    "SELECT g, median(x) AS m, quantile_disc(s, 0.3) AS q, quantile_cont(f, 0.77) AS q2 FROM a GROUP BY g",
    "SELECT g, count(DISTINCT s) AS ds, sum(DISTINCT d) AS su, avg(DISTINCT x) AS av, median(DISTINCT d) AS md FROM a "
    "GROUP BY g",
    "SELECT g, first(s) AS fs, last(s) AS ls, arg_max(s, x) AS am, arg_min(k, x) AS an, first(k ORDER BY x DESC) AS fo "
    "FROM a GROUP BY g",
    "SELECT g, list(d) AS l, string_agg(s, ',' ORDER BY t) AS sa FROM a WHERE d < 25 GROUP BY g",
    "SELECT count(*) AS n, sum(x) AS s, median(x) AS m, count(DISTINCT k) AS dk FROM a",
    "SELECT sum(k) AS n, max(s) AS m, count(*) AS c FROM a WHERE k < -1",
    "SELECT sum(CASE WHEN k < -1 THEN k END) AS n, min(CASE WHEN k < -1 THEN s END) AS s, "
    "median(CASE WHEN k < -1 THEN x END) AS m, stddev(CASE WHEN t = 7 THEN x END) AS one FROM a",
]


IN_MEMORY = [
    *(text for text in QUERIES if "LIMIT 10" in text or "UNION ALL" in text or "< -1" in text or "DISTINCT g" in text),
    OF_LARGE_GROUPS[0],
    OF_LARGE_GROUPS[-2],
]
"""Of few groups, or first rows: what is kept of them fits."""


def same(one: pa.Table, other: pa.Table) -> bool:
    """Whether rows, their order, their types and the signs of zeros are the same."""
    return one.schema == other.schema and repr(one.to_pydict()) == repr(other.to_pydict())


def read(answer: Any) -> pa.Table:
    return pa.Table.from_batches(list(answer.batches()), answer.schema)


@pytest.mark.parametrize("text", thinned(QUERIES + OF_LARGE_GROUPS, 3))
def test_the_same_rows_in_the_same_order_as_without_a_limit(small: nile.Database, text: str) -> None:
    answer = small.sql(text)
    found = read(answer)
    assert same(found, opened().sql(text).to_arrow())
    assert (answer.spilled_bytes > 0) == (text not in IN_MEMORY)


@pytest.mark.parametrize("text", QUERIES[:4] + QUERIES[6:12] + OF_LARGE_GROUPS[:3])
def test_the_same_rows_as_duckdb(small: nile.Database, text: str) -> None:
    db = fresh_duckdb()
    for name, rows in TABLES.items():
        db.register(name, rows)

    def rounded(rows: list[tuple[Any, ...]]) -> list[str]:
        return sorted(repr(tuple(f"{v:.9g}" if isinstance(v, float) else v for v in row)) for row in rows)

    found = [tuple(row.values()) for row in read(small.sql(text)).to_pylist()]
    wanted = [tuple(row.values()) for row in db.sql(text).to_arrow_table().to_pylist()]
    plain = [[tuple(map(_plus, row)) for row in rows] for rows in (found, wanted)]
    assert rounded(plain[0]) == rounded(plain[1])


def _plus(value: Any) -> Any:
    """Zeros are of one sign: which of two equal ones stands for a group nobody says; whole numbers are whole."""
    return value + 0.0 if isinstance(value, float) else int(value) if isinstance(value, Decimal) else value


def test_keys_whose_hashes_are_the_same_are_told_apart(small: nile.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    def three(columns: Any, rows: int) -> Any:
        return row_hashes(columns, rows) % np.uint64(3)

    monkeypatch.setattr("nile.execution.exact.parting.row_hashes", three)
    for text in (
        "SELECT d, count(*) AS n, sum(f) AS s FROM a GROUP BY d",
        "SELECT DISTINCT d FROM a",
        "SELECT d FROM a EXCEPT ALL SELECT d FROM b",
    ):
        assert same(read(small.sql(text)), opened().sql(text).to_arrow())


@pytest.mark.parametrize("most", [None, 3, 500])
@pytest.mark.parametrize("kind", ["random", "equal", "rising", "falling"])
def test_sorted_runs_are_merged_in_several_passes(kind: str, most: int | None) -> None:
    rng = np.random.default_rng(3)
    key = {
        "random": rng.integers(0, 300, ROWS),
        "equal": np.zeros(ROWS, np.int64),
        "rising": np.arange(ROWS),
        "falling": -np.arange(ROWS),
    }[kind]
    rows = pa.record_batch({"key": key, "at": np.arange(ROWS)})

    def order(batch: pa.RecordBatch) -> Any:
        return np.argsort(batch.column(0).to_numpy(), kind="stable")

    spills = Spills()
    share = 1_000 if most == 3 else 400  # five rows a run: three levels of them
    sorter = Sorter(spills, rows.schema, order, share, most)
    for begin in range(0, ROWS, 7):
        sorter.add(rows.slice(begin, 7))
    found = pa.Table.from_batches(list(sorter.rows()), rows.schema)
    assert found.equals(pa.table(rows.take(pa.array(order(rows)))).slice(0, most))
    assert (spills.written > 0) == (most != 3)
    spills.close()


def test_parts_have_all_rows_of_their_keys_in_order() -> None:
    rows = pa.record_batch({"key": np.random.default_rng(4).integers(0, 500, ROWS), "at": np.arange(ROWS)})
    spills = Spills()
    batches = (rows.slice(begin, 100) for begin in range(0, ROWS, 100))
    share = footprint(rows.slice(0, 40))

    def hashes(batch: pa.RecordBatch) -> Any:
        return row_hashes(batch.columns[:1], batch.num_rows)

    seen: set[int] = set()
    places: list[int] = []
    for part in parts(batches, rows.schema, hashes, spills, share):
        assert isinstance(part, pa.RecordBatch)
        assert footprint(part) <= share
        keys, at = part.column(0).to_pylist(), part.column(1).to_pylist()
        assert at == sorted(at)
        assert seen.isdisjoint(keys)
        seen.update(keys)
        places += at
    assert sorted(places) == list(range(ROWS))
    heavy = pa.record_batch({"key": np.where(np.arange(ROWS) % 2, 1, rows.column(0).to_numpy()), "at": np.arange(ROWS)})
    found = list(parts(iter([heavy]), rows.schema, hashes, spills, share))
    assert sum(isinstance(part, Spill) for part in found) == 1
    spills.close()


def test_rows_of_several_keys_are_taken_apart() -> None:
    spills = Spills()
    rows = spills.new(pa.schema([("key", pa.int64())]))
    for batch in (pa.record_batch({"key": np.array(keys)}) for keys in ([4, 4, 5], [6, 4, 5], [4])):
        spills.put(rows, batch)
    found = [
        [key for batch in each.kept() for key in batch.column(0).to_pylist()]
        for each in apart(rows, lambda batch: batch.columns, spills)
    ]
    assert found == [[4, 4, 4, 4], [5, 5], [6]]
    spills.close()


def test_hashes_are_alike_where_rows_are() -> None:
    floats = pa.array([0.0, -0.0, np.nan, -np.nan, None, 1.0])
    found = row_hashes([floats, pa.array(["a"] * 6)], 6)
    assert found[0] == found[1]
    assert found[2] == found[3]
    assert len(set(found.tolist())) == 4
    times = pa.array([1 << 40, -(1 << 40)]).cast(pa.timestamp("s"))  # beyond what nanoseconds can say
    assert len(set(row_hashes([times], 2).tolist())) == 2
    with pytest.raises(nile.KeyTypeError, match="told equal"):
        row_hashes([pa.array([[1]])], 1)


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """All files that were opened for spilled rows."""
    made: list[Any] = []

    def opened_file(folder: Path | None = None) -> Any:
        made.append(tempfile.TemporaryFile(dir=folder))  # noqa: SIM115 (whoever asked closes it)
        return made[-1]

    monkeypatch.setattr(spilling, "temporary_file", opened_file)
    return made


LARGE = ["SELECT k, s, count(*) AS n FROM a GROUP BY k, s", "SELECT t, f FROM a ORDER BY f"]


@pytest.mark.parametrize("text", LARGE)
def test_files_go_at_the_end_and_when_nobody_reads_on(small: nile.Database, files: list[Any], text: str) -> None:
    assert len(read(small.sql(text))) > 0
    assert files
    assert all(file.closed for file in files)
    files.clear()
    reading = small.sql(text).batches()
    assert next(reading).num_rows
    assert not all(file.closed for file in files)
    reading.close()  # type: ignore[attr-defined]
    assert all(file.closed for file in files)


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
@pytest.mark.parametrize("text", LARGE)
def test_files_go_where_something_is_raised(
    monkeypatch: pytest.MonkeyPatch, files: list[Any], text: str, error: type[BaseException]
) -> None:
    monkeypatch.setattr("nile.engine.connect.LEAST_ROOM", ROOM)

    def rows() -> Iterator[pa.RecordBatch]:
        for batch in TABLES["a"].to_batches(max_chunksize=500):
            if batch.column(0)[0].as_py() == 5_500:
                raise error
            yield batch

    db = nile.connect(memory=f"{ROOM}").register("a", rows, time="t")
    with pytest.raises(error):
        read(db.sql(text))
    assert files
    assert all(file.closed for file in files)


@pytest.mark.parametrize("text", LARGE)
def test_answers_asked_for_before_close_are_read_to_their_end(
    small: nile.Database, files: list[Any], text: str
) -> None:
    reading = small.sql(text).batches()
    found = [next(reading)]
    small.close()
    found += reading
    assert sum(batch.num_rows for batch in found) == opened().sql(text).to_arrow().num_rows
    assert all(file.closed for file in files)


def test_a_full_disk_is_one_sentence(small: nile.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def __init__(self, file: Any) -> None:
            self._file = file

        def __getattr__(self, name: str) -> Any:
            return getattr(self._file, name)

        def write(self, part: bytes) -> int:
            if self._file.tell() > 20_000:
                raise OSError(errno.ENOSPC, "No space left on device")
            return int(self._file.write(part))

    monkeypatch.setattr(spilling, "temporary_file", lambda folder: Full(tempfile.TemporaryFile(dir=folder)))  # noqa: SIM115
    for text in LARGE:
        with pytest.raises(
            nile.MemoryRefused, match=r"room on disk .* got 'No space left on device' in '.*', with .* written;"
        ):
            read(small.sql(text))


def test_files_of_a_store_lie_in_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders: list[Path | None] = []
    opener = spilling.temporary_file
    monkeypatch.setattr(spilling, "temporary_file", lambda folder: folders.append(folder) or opener(folder))
    with nile.connect(tmp_path / "store") as db:
        db._names.room = ROOM
        db.stream("a", TABLES["a"].schema, time="t")
        db.push("a", TABLES["a"])
        db.advance(10 * ROWS)
        for text in LARGE:
            assert same(read(db.sql(text)), opened().sql(text).to_arrow())
        assert set(folders) == {Path(tmp_path / "store").resolve()}
        assert not list((tmp_path / "store").glob("nile-*"))
    with nile.connect(tmp_path / "store", read_only=True) as db:
        db._names.room = ROOM
        folders.clear()
        read(db.sql(LARGE[0]))
        assert set(folders) == {None}


def test_explain_and_figures_say_what_was_spilled(small: nile.Database) -> None:
    answer = small.sql(LARGE[0])
    assert answer.spilled_bytes == 0
    told = answer.explain(analyze=True)
    assert f", {answer.spilled_bytes:,} spilled to files" in told
    assert answer.spilled_bytes > 100_000
    values = json.loads(small.sql(LARGE[0]).explain(analyze=True, form="json"))
    assert values["memory"]["spilled"] == answer.spilled_bytes
    assert "spilled" not in opened().sql(LARGE[0]).explain(analyze=True)


def test_what_is_held_whole_is_refused_and_says_what_streams_it(small: nile.Database, tmp_path: Path) -> None:
    text = "SELECT t, k, s, f, x FROM a ORDER BY f"
    with pytest.raises(
        nile.MemoryRefused, match=r"connect\(memory=\) allows an answer; iterate batches\(\) or write_parq"
    ):
        small.sql(text).to_arrow()
    small.sql(f"COPY ({text}) TO '{tmp_path / 'a.parquet'}'")
    wanted = opened().sql(text).to_arrow()
    assert same(pq.read_table(tmp_path / "a.parquet"), wanted)
    assert small.sql(text).write_csv(tmp_path / "a.csv") == ROWS


def test_inputs_of_joins_go_in_parts_where_rows_pass(small: nile.Database, files: list[Any]) -> None:
    """In any order; what is held whole is joined at once."""
    for text in (
        "SELECT a.t, b.t AS u, a.s FROM a, b WHERE a.k = b.k AND a.d <= b.d",
        "SELECT a.t, b.t AS u, c.t AS v FROM a, b, a AS c WHERE a.k = b.k AND b.k = c.k AND a.g = 0 AND b.g = 0 AND "
        "c.g = 0",
        "SELECT a.t, b.t AS u FROM a, b WHERE a.k = b.k AND a.g = b.g",
        "SELECT a.t FROM a, b WHERE a.k = b.k AND b.d < 0",
    ):
        answer = small.sql(text)
        found = read(answer)
        wanted = opened().sql(text).to_arrow()
        assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, wanted.to_pylist()))
        assert answer.spilled_bytes > 0
        assert all(file.closed for file in files)
        assert small.sql(f"{text} LIMIT 3").to_arrow().num_rows == min(3, wanted.num_rows)
    with pytest.raises(nile.MemoryRefused, match=r"connect\(memory=\) allows an answer; iterate"):
        small.sql("SELECT a.t, b.t AS u, a.f, b.f AS h FROM a, b WHERE a.g = b.g").to_arrow()


def test_a_list_that_memory_does_not_hold_is_refused(small: nile.Database) -> None:
    with pytest.raises(nile.MemoryRefused, match="allows an answer"):
        read(small.sql("SELECT list(s ORDER BY f) AS l, count(*) AS n, sum(x) AS s FROM (SELECT * FROM a UNION ALL "
                       "SELECT * FROM a UNION ALL SELECT * FROM a) q"))  # fmt: skip


LISTING = """
import sys, threading
import nile
from nile.base.machine import memory_held
from nile.execution.exact import one_group
from nile.execution.exact.one_group import OneGroup

one_group.room_for_answers = lambda: 1 << 40  # nothing is refused

anonymous = lambda: memory_held("RssAnon")

made = OneGroup._listed

def measured(self, item):
    rows, needed = self.list_bytes(item)
    before, peak, done = anonymous(), [0], threading.Event()
    def watch():
        while not done.wait(0.001):
            peak[0] = max(peak[0], anonymous())
    watching = threading.Thread(target=watch)
    watching.start()
    try:
        found = made(self, item)
    finally:
        done.set()
        watching.join()
    print(rows, needed, peak[0] - before, flush=True)
    return found

OneGroup._listed = measured
db = nile.connect(memory="300MB").register("a", sys.argv[1], time="t")
for text in sys.argv[2:]:
    assert sum(batch.num_rows for batch in db.sql(text).batches()) == 1
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux tells anonymous memory")
def test_a_list_takes_no_more_than_it_is_refused_by(tmp_path: Path) -> None:
    """And not a third of it, or lists that fit would be refused."""
    rows = 1_200_000
    rng = np.random.default_rng(9)
    texts = pa.array([f"value {v:07d}" for v in range(1_000)]).take(pa.array(rng.integers(0, 1_000, rows)))
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"t": np.arange(rows), "v": rng.integers(0, 1 << 40, rows), "f": rng.normal(size=rows),
                             "s": texts}), file, row_group_size=100_000)  # fmt: skip
    asked = [
        f"SELECT {each} AS l FROM a"
        for each in (
            "list(v)", "list(v ORDER BY f)", "list(DISTINCT v)", "list(s)", "list(s ORDER BY s)", "list(v + 1)",
            "string_agg(s, ',')", "string_agg(s, ',' ORDER BY f DESC, v)", "list(s) FILTER (WHERE f > -2)",
        )
    ]  # fmt: skip
    for text in asked:  # each in a process that keeps no memory from before
        told = subprocess.run(
            [sys.executable, "-c", LISTING, str(file), text], capture_output=True, text=True, check=True
        ).stdout
        _, needed, peak = map(int, told.split())
        assert needed / 3 < peak <= 1.1 * needed, f"{text}: {peak:,} bytes, by the rule {needed:,}"


SOURCES: dict[str, Callable[[Path], Any]] = {
    "table": lambda _: TABLES["a"],
    "parquet": lambda path: _written(path / "a.parquet"),
    "reader": lambda _: TABLES["a"].to_reader(max_chunksize=1_000),
    "pandas": lambda _: TABLES["a"].to_pandas(),
}


def _written(path: Path) -> Path:
    pq.write_table(TABLES["a"], path, row_group_size=1_000)
    return path


@pytest.mark.parametrize("name", SOURCES)
def test_sources_of_all_kinds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr("nile.engine.connect.LEAST_ROOM", ROOM)
    for time in ("t", None):
        db = nile.connect(memory=f"{ROOM}").register("a", SOURCES[name](tmp_path), time=time)
        answer = db.sql("SELECT s, d, count(*) AS n FROM a WHERE g < 2 GROUP BY s, d")
        found = read(answer)
        assert same(found, opened().sql("SELECT s, d, count(*) AS n FROM a WHERE g < 2 GROUP BY s, d").to_arrow())
        assert answer.spilled_bytes > 0
        assert answer._run is not None
        assert answer._run.accounting["a"].applied == ROWS


def test_levels_of_parts_end(monkeypatch: pytest.MonkeyPatch, small: nile.Database) -> None:
    """Hashes that agree in all bits that are looked at, but one that is not."""
    monkeypatch.setattr(parting, "_LEVELS", 1)
    text = "SELECT k, count(*) AS n FROM a GROUP BY k"
    assert same(read(small.sql(text)), opened().sql(text).to_arrow())


CHILD = """
import sys, threading
import pyarrow as pa
import nile
from nile.base.machine import memory_held

path, rows = sys.argv[1:]

anonymous = lambda: memory_held("RssAnon") >> 10

def most(text):
    before, peak, done = anonymous(), [0], threading.Event()
    def watch():
        while not done.wait(0.005):
            peak[0] = max(peak[0], anonymous())
    watching = threading.Thread(target=watch)
    watching.start()
    found = sum(batch.num_rows for batch in db.sql(text).batches())
    done.set()
    watching.join()
    return found, max(0, peak[0] - before) // 1024

db = nile.connect(memory="64MB").register("a", path, time="t")
TEXTS = {
    "group": "SELECT k, count(*) AS n, median(f) AS m FROM a GROUP BY k",
    "order": "SELECT t, k, f FROM a ORDER BY f",
    "distinct": "SELECT DISTINCT k, f FROM a",
    "join": "SELECT x.t, y.t AS u FROM a x, a y WHERE x.k = y.k",
    "cast": "SELECT x.t, y.t AS u FROM a x, a y WHERE CAST(x.k AS DOUBLE) = y.k + 0.0",
    "unequal": "SELECT x.t, y.t AS u FROM a x, (SELECT t, f FROM a WHERE t < 20) y WHERE x.f + 2 < y.f",
    "outer": "SELECT x.t, y.f FROM a x LEFT JOIN a y ON x.k = y.k AND x.f < y.f",
    "anti": "SELECT t FROM a x WHERE NOT EXISTS (SELECT 1 FROM a y WHERE x.k = y.k AND x.f < y.f)",
    "join-group": "SELECT x.k, sum(x.f * y.f) AS s FROM a x, a y WHERE x.k = y.k GROUP BY x.k",
    "counted": "SELECT x.k, count(*) AS n, sum(y.f) AS s FROM a x, a y WHERE x.k = y.k GROUP BY x.k",
    "over": "SELECT t, sum(f) OVER (ORDER BY t) AS s, rank() OVER (ORDER BY f) AS r FROM a",
    "over-near": "SELECT t, avg(f) OVER (ORDER BY t ROWS 99 PRECEDING) AS m, lag(f) OVER (ORDER BY t) AS l FROM a",
    "except": "SELECT k FROM a WHERE f < 0 EXCEPT SELECT k FROM a WHERE f > 0",
}
for text in TEXTS.values():  # compiled, and memory that is kept
    most(text + " LIMIT 1")
for name, text in TEXTS.items():
    print(name, *most(text), flush=True)
"""


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux tells anonymous memory")
def test_anonymous_memory_is_flat_however_many_rows_there_are(tmp_path: Path) -> None:
    """Eight times as many rows take no more than half as much again of memory, and no more than twice the limit."""
    most: dict[str, list[int]] = {}
    for rows in (1_000_000, 8_000_000):
        path = tmp_path / f"{rows}.parquet"
        rng = np.random.default_rng(rows)
        columns = {"t": np.arange(rows), "k": rng.integers(0, rows, rows), "f": rng.normal(size=rows)}
        pq.write_table(pa.table(columns), path, row_group_size=100_000)
        del columns
        told = subprocess.run(
            [sys.executable, "-c", CHILD, str(path), str(rows)], capture_output=True, text=True, check=True
        ).stdout.split("\n")
        for name, found, mib in (line.split() for line in told if line):
            assert int(found) > 0
            most.setdefault(name, []).append(int(mib))
    for name, (few, many) in most.items():
        assert many <= max(1.5 * few, 64), f"{name}: {few} MiB, then {many} MiB"
        assert many <= 128, name
