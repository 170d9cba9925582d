"""Text keys of Parquet files come as dictionaries of their distinct values, and are kept while files are unchanged."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from file_readings import readings

import nile
from nile.base import pages, unchanged
from nile.exact.join.chain import encode_all, window_codes
from nile.streams.files import coding, text_coder
from nile.streams.files.parquet import ParquetSource
from nile.streams.files.text_coder import TextCoder
from nile.streams.manager import StreamManager, StreamSpec

LONG_AGO = 1_500_000_000_123_456_789  # ns, when a file was changed that may be taken to stay as it is
TEXTS = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())


def _texts(n: int, distinct: int, seed: int = 1) -> list[str | None]:
    drawn = np.random.Generator(np.random.PCG64(seed)).integers(0, distinct, n)
    return [None if k == 3 else "" if k == 4 else f"{'long text ' * (k % 5)}{k}" for k in drawn]


def _coded(pieces: Sequence[pa.Array]) -> tuple[list[Any], list[int | None]]:
    """The distinct values and the places of all in them: what `TextCoder` is to give."""
    known: dict[Any, int] = {}
    cells = [cell for piece in pieces for cell in piece.to_pylist()]
    places = [None if cell is None else known.setdefault(cell, len(known)) for cell in cells]
    return list(known), places


@pytest.mark.parametrize("kind", TEXTS, ids=str)
@pytest.mark.parametrize(("n", "distinct"), [(1, 1), (50, 7), (40_000, 30_000)])
def test_texts_are_coded_in_the_order_in_which_they_come(kind: pa.DataType, n: int, distinct: int) -> None:
    whole = pa.array([*_texts(n, distinct), None]).cast(kind)
    pieces = [whole.slice(0, n // 3), whole.slice(n // 3, 0), whole.slice(n // 3)]
    coder = TextCoder(kind, n + 1)
    for piece in pieces:
        coder.add(piece)
    column = coder.column()
    column.validate(full=True)
    assert (column.dictionary.to_pylist(), column.indices.to_pylist()) == _coded(pieces)
    assert column.type == pa.dictionary(pa.int32(), kind)
    assert coder.distinct == len(column.dictionary)


def test_two_texts_of_one_hash_are_not_taken_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_coder, "FACTORS", np.zeros(3, np.uint64))
    coder = TextCoder(pa.string(), 3)
    coder.add(pa.array(["a", "a", "b"]))
    assert coder.column() is None


def test_more_bytes_than_offsets_tell_are_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_coder, "MOST", 3)
    for kind, there in ((pa.string(), False), (pa.large_string(), True)):
        coder = TextCoder(kind, 2)
        coder.add(pa.array(["ab", "cd"], kind))
        assert (coder.column() is not None) == there


@pytest.mark.parametrize("kind", TEXTS, ids=str)
@pytest.mark.parametrize("groups", [300, 50_000])
@pytest.mark.parametrize("longer", [0, 40], ids=["as long", "longer and longer"])
def test_texts_that_are_held_are_those_of_the_file(
    kind: pa.DataType, groups: int, longer: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coding, "_MOST_ROWS", 100)
    cells = [None if k % 7 == 3 else "" if k % 7 == 4 else f"{k}" + "x" * (k * longer // 100) for k in range(1_000)]
    for valid in (cells, ["a" if cell is None else cell for cell in cells], [None] * 1_000, [], cells[:1]):
        table = pa.table({"k": pa.array(valid, pa.string()).cast(kind), "v": range(len(valid))})
        parquet.write_table(table, tmp_path / "s.parquet", row_group_size=groups)
        reader = parquet.ParquetFile(tmp_path / "s.parquet")
        wanted = list(range(reader.metadata.num_row_groups))[1:] or [0] * reader.metadata.num_row_groups
        size = coding.sampled(reader, "k", kind).size
        column = coding.held_column(reader, "k", kind, wanted, size)
        column.validate(full=True)
        assert column.equals(reader.read_row_groups(wanted, ["k"])["k"].combine_chunks())


def test_more_texts_than_offsets_tell_are_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coding, "MOST", 1_000)
    for kind, there in ((pa.string(), False), (pa.large_string(), True)):
        path = _written(tmp_path / "s.parquet", _stream(2_000, 1, 10**6).cast(_schema(kind)))
        assert (coding.held_column(parquet.ParquetFile(path), "k", kind, [0], 9.0) is not None) == there
        source = ParquetSource(path).coded("k")
        read = [cell for raw in source.batches(["k"], 3_000) for cell in raw.batch.column("k").to_pylist()]
        assert read == _texts(2_000, 10**6, 1)


def _schema(kind: pa.DataType) -> pa.Schema:
    return pa.schema([("ts", pa.timestamp("ns")), ("k", kind), ("v", pa.int64())])


def _alike(one: Sequence[np.ndarray], other: Sequence[np.ndarray]) -> None:
    """The same tuples have the same code, and nobody's partner is lost."""
    a, b = (np.concatenate(each) for each in (one, other))
    assert a.shape == b.shape
    pairs = {(int(x), int(y)) for x, y in zip(a, b, strict=True) if x >= 0 and y >= 0}
    assert len({x for x, _ in pairs}) == len({y for _, y in pairs}) == len(pairs)


@pytest.mark.parametrize("shared", [False, True])
def test_dictionaries_are_coded_as_the_texts_that_they_stand_for(shared: bool) -> None:
    left, right = (pa.array(_texts(3_000, 700, seed)) for seed in (1, 2))
    double = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, None, 3]), pa.array(["5", "6", "5", None]))
    for columns in (
        [left.dictionary_encode(), right.dictionary_encode()],
        [left.dictionary_encode(), right],
        [pa.chunked_array([left.slice(0, 1_000).dictionary_encode(), left.slice(1_000).dictionary_encode()]), right],
        [double, right.dictionary_encode()],
        [left.dictionary_encode().slice(5, 100), right.dictionary_encode().slice(7, 0)],
    ):
        plain = [column.cast(pa.string()) for column in columns]
        coded, wanted = window_codes(columns, shared=shared), window_codes(plain)
        _alike(coded, wanted)
        for code, all_codes, cells, others in zip(coded, wanted, plain, plain[::-1], strict=True):
            none, partners = np.array(cells.is_null()), set(others.to_pylist())
            assert (code[none] == -1).all()
            assert (all_codes[none] == -1).all()
            joins = np.array([cell is not None and cell in partners for cell in cells.to_pylist()], bool)
            assert (code[joins] >= 0).all()
            assert shared or (code[~none] >= 0).all()


def test_dictionaries_without_a_value_are_null() -> None:
    empty = pa.DictionaryArray.from_arrays(pa.array([None, None], pa.int32()), pa.array([], pa.string()))
    assert [codes.tolist() for codes in window_codes([empty, pa.array(["a"])])] == [[-1, -1], [0]]


NUMBERS = (
    pa.array([5, 3, None, 5, -4, 3], pa.int64()),
    pa.array([2**62, -(2**62), 0, -(2**62)], pa.int64()),
    pa.array([1.5, float("nan"), -0.0, 0.0, None, 1.5, -2.0]),
    pa.array([0.5, 1.5, 0.0, -0.0, None, float("nan"), 0.5]),
    pa.array([7, None, 7, 1], pa.date32()),
    pa.array([7, None, 7, 1], pa.timestamp("us")),
    pa.array([2**64 - 1, 3, 2**64 - 1], pa.uint64()),
    pa.array([True, False, None, True]),
    pa.array([], pa.int32()),
)


@pytest.mark.parametrize("column", NUMBERS, ids=lambda column: f"{column.type} {len(column)}")
def test_numbers_are_coded_in_the_order_in_which_they_come(column: pa.Array) -> None:
    known: dict[Any, int] = {}
    wanted = []
    for cell in [*column.to_pylist(), *column.to_pylist()[::-1]]:
        same = "nan" if cell != cell else cell
        wanted.append(-1 if cell is None else known.setdefault(same, len(known)))
    (one, other), distinct = encode_all([column, column.take(pa.array(range(len(column))[::-1], pa.int64()))])
    assert [*one.tolist(), *other.tolist()] == wanted
    assert distinct == max(1, len(known))


def test_small_pages_are_taken_while_little_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    if "jemalloc" not in pa.supported_memory_backends():
        pytest.skip("Arrow has no such allocator here")
    small = pa.jemalloc_memory_pool()
    monkeypatch.setattr(pages, "SMALL_PAGES", small.bytes_allocated() + 1_000)
    assert pages.page_pool(1_000).backend_name == "jemalloc"
    assert pages.page_pool(1_001) is None
    monkeypatch.setattr(pa, "supported_memory_backends", lambda: ["system"])
    assert pages.page_pool(1) is None


def _stream(n: int, seed: int, distinct: int) -> pa.Table:
    rng = np.random.Generator(np.random.PCG64(seed))
    ts = pa.array(np.sort(rng.integers(0, 100 * n, n)) * 1_000_000).view(pa.timestamp("ns"))
    return pa.table({"ts": ts, "k": _texts(n, distinct, seed), "v": np.arange(n)})


def _written(path: Path, table: pa.Table, changed: int = LONG_AGO, **how: Any) -> Path:
    parquet.write_table(table, path, **how)
    os.utime(path, ns=(changed, changed))
    return path


@pytest.fixture(autouse=True)
def _settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are as old as they say; dictionaries are so small that none counts as read as one anyway."""
    monkeypatch.setattr(unchanged, "_FINE", -1.0)
    monkeypatch.setattr("nile.streams.files.parquet._SMALL_DICTIONARY", 0)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    return readings(monkeypatch)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("groups", [500, 5_000])
def test_keys_of_files_are_what_their_texts_are(tmp_path: Path, threads: int, groups: int) -> None:
    table = _stream(2_000, 1, 200)
    source = ParquetSource(_written(tmp_path / "s.parquet", table, row_group_size=groups))
    for _ in range(2):
        batches = list(StreamManager(StreamSpec("s", source, "ts", "k", carry=("v",), threads=threads)).whole())
        assert all(pa.types.is_dictionary(batch.key.type) for batch in batches)
        assert [cell for batch in batches for cell in batch.key.to_pylist()] == table["k"].to_pylist()
        assert [cell for batch in batches for cell in batch.carried["v"].to_pylist()] == table["v"].to_pylist()
    pieces = list(StreamManager(StreamSpec("s", source, "ts", "k", threads=threads)).batches(300))
    assert not any(pa.types.is_dictionary(batch.key.type) for batch in pieces)


def test_columns_of_as_many_values_as_rows_stay_texts(tmp_path: Path) -> None:
    few, many = (_written(tmp_path / f"{n}.parquet", _stream(20_000, 1, n)) for n in (3_000, 10**6))
    assert pa.types.is_dictionary(ParquetSource(few).coded("k").schema.field("k").type)
    assert ParquetSource(many).coded("k").schema.field("k").type == pa.string()
    assert ParquetSource(few).coded("v").schema.field("v").type == pa.int64()


def test_texts_of_one_hash_are_read_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = _stream(2_000, 1, 50)
    source = ParquetSource(_written(tmp_path / "s.parquet", table)).coded("k")
    monkeypatch.setattr(coding, "coded_column", lambda *_: None)
    monkeypatch.setattr("nile.streams.files.parquet.coded_column", lambda *_: None)
    (read,) = source.batches(["v", "k"], 10_000, 1)
    assert read.batch.column("k").type == pa.dictionary(pa.int32(), pa.string())
    assert read.batch.column("k").to_pylist() == table["k"].to_pylist()
    assert read.batch.column("v").to_pylist() == table["v"].to_pylist()


QUESTIONS = (
    "SELECT a.v AS x, b.v AS y FROM a, b WHERE a.k = b.k WINDOW '20 s'",
    "SELECT a.v AS x, b.v AS y, a.k AS k FROM a, b WHERE a.k = b.k WINDOW '20 s'",
    "SELECT a.v AS x, b.v AS y FROM a, b WHERE a.k = b.k AND b.k < 'long text m' WINDOW '20 s'",
    "SELECT a.v AS x, b.v AS y FROM a, b WHERE a.k = b.k AND a.v % 3 < b.v WINDOW '20 s'",
    "SELECT a.v AS x, c.v AS y FROM a, a c WHERE a.k = c.k WINDOW '20 s'",
    "SELECT a.v AS x, b.v AS y FROM a, b, c WHERE a.k = b.k AND a.k = c.k WINDOW '30 s'",
    "SELECT a.v AS x, b.v AS y FROM a, b WHERE a.k = b.k LIMIT 50",
    "SELECT count(*) AS n FROM a, b WHERE a.k = b.k WINDOW '20 s'",
    "SELECT 1 AS one FROM a, b WHERE a.k = b.k WINDOW '1 s'",
    "SELECT a.k AS k, count(*) AS n FROM a, b WHERE a.k = b.k GROUP BY a.k",
)


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("groups", [700, 5_000])
@pytest.mark.parametrize("distinct", [300, 1_900])
def test_questions_over_files_are_answered_as_over_tables(
    tmp_path: Path, question: str, groups: int, distinct: int
) -> None:
    tables = {name: _stream(2_000, seed, distinct) for seed, name in enumerate("abc")}
    with nile.connect() as files, nile.connect() as memory:
        for name, table in tables.items():
            path = _written(tmp_path / f"{name}.parquet", table, row_group_size=groups)
            files.register(name, path, time="ts")
            memory.register(name, table, time="ts")
        wanted = memory.sql(question).to_arrow()
        for _ in range(3):
            found = files.sql(question).to_arrow()
            assert found.schema == wanted.schema
            assert found.to_pylist() == wanted.to_pylist()


@pytest.mark.parametrize("output", ["pairs", "ranges"])
def test_joins_over_files_are_those_over_tables(tmp_path: Path, output: str) -> None:
    tables = {name: _stream(2_000, seed, 300) for seed, name in enumerate("ab")}
    with nile.connect() as files, nile.connect() as memory:
        for name, table in tables.items():
            files.register(name, _written(tmp_path / f"{name}.parquet", table), time="ts")
            memory.register(name, table, time="ts")
        one, other = (db.join("a", "b", on="k", window="20 s").returning(output) for db in (memory, files))
        for _ in range(3):
            assert other.run().to_arrow().equals(one.run().to_arrow())
            assert other.run().estimate == one.run().estimate
        for fraction in (0.3, 0.999):
            a, b = (each.run(budget=fraction).to_arrow() for each in (one, other))
            assert a.schema == b.schema


@pytest.mark.parametrize("key", ["k", "v"])
def test_keys_are_read_once_while_files_are_unchanged(key: str, tmp_path: Path, asked: list[tuple[str, ...]]) -> None:
    table = _stream(2_000, 1, 200)
    path = _written(tmp_path / "s.parquet", table, row_group_size=700)
    source = ParquetSource(path)

    def read(carry: tuple[str, ...] = ()) -> list[Any]:
        one = StreamManager(StreamSpec("s", source, "ts", key, carry=carry))
        cells = [cell for batch in one.whole() for cell in batch.key.to_pylist()]
        assert one.accounting.applied == len(cells)
        return cells

    assert read() == read() == table[key].to_pylist()
    assert [set(each) for each in asked] == [{"ts", key}]
    assert read((key,)) == table[key].to_pylist()
    assert [set(each) for each in asked] == [{"ts", key}, {key}]
    other = table.set_column(1, "k", table["k"].take(pa.array(range(2_000)[::-1])))
    other = other.set_column(2, "v", pa.array(range(2_000)[::-1]))
    _written(path, other, LONG_AGO + 1, row_group_size=700)
    assert read() == read() == other[key].to_pylist()
    assert [set(each) for each in asked[2:]] == [{"ts", key}]


def test_long_texts_of_many_values_are_not_kept(tmp_path: Path, asked: list[tuple[str, ...]]) -> None:
    source = ParquetSource(_written(tmp_path / "s.parquet", _stream(20_000, 1, 10**6)))
    for _ in range(2):
        list(StreamManager(StreamSpec("s", source, "ts", "k")).whole())
    assert [set(each) for each in asked] == [{"ts", "k"}, {"k"}]
