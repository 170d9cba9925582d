"""JSON lines: what is read, what is set aside, what is refused; DuckDB reads the same."""

from __future__ import annotations

import gzip
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from judge import fresh_duckdb

import nile
from nile.base.raw import RawBatch
from nile.streams.files import json_lines
from nile.streams.files.json_lines import JsonSource, infer_json


def written(folder: Path, content: bytes | str, name: str = "data.ndjson") -> Path:
    path = folder / name
    raw = content if isinstance(content, bytes) else content.encode()
    path.write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    return path


def read(path: Path, rows: int = 100) -> list[RawBatch]:
    source = JsonSource(path)
    return list(source.batches(source.schema.names, rows))


def values(batches: list[RawBatch]) -> list[dict[str, object]]:
    return [row for raw in batches for row in raw.batch.to_pylist()]


@pytest.mark.parametrize("name", ["a.ndjson", "a.jsonl", "a.json", "a.ndjson.gz", "A.JSON"])
def test_names_and_packed_files(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, '{"n": 1, "t": "x"}\n{"n": 2, "t": ""}\n', name)
    db = nile.connect().register("s", path)
    assert db.sql("SELECT n, t FROM s").fetchall() == [(1, "x"), (2, "")]


@pytest.mark.parametrize(
    "content",
    [
        '{"n":1,"t":"x"}\n{"n":2,"t":null}\n',
        '{"n":1,"t":"x"}\n{"n":2}',
        '{"n":1,"t":"x"}\r\n{"n":2}\r\n',
        '\ufeff{"n":1,"t":"x"}\n\n  \n{"n":2,"t":null}\n\n',
        ' { "t" : "x" , "n" : 1 } \n\t{"n":2}\n',
    ],
)
def test_line_ends_marks_blanks_and_missing_names_do_not_matter(tmp_path: Path, content: str) -> None:
    found = values(read(written(tmp_path, content)))
    assert [{"n": row["n"], "t": row["t"]} for row in found] == [{"n": 1, "t": "x"}, {"n": 2, "t": None}]


def test_types_are_those_of_the_first_lines(tmp_path: Path) -> None:
    lines = [
        {"i": 1, "f": 1, "b": True, "t": "2024-01-05T10:00:00Z", "s": "12", "o": {"a": [1, 2.50]}, "m": 1, "e": None},
        {"i": -2, "f": 2.5, "b": False, "t": "2024-01-06", "s": "7", "o": [1, "ø"], "m": "x", "e": None},
    ]
    path = written(tmp_path, "".join(json.dumps(each) + "\n" for each in lines))
    kinds = {field.name: str(field.type) for field in infer_json(path)}
    assert kinds == {
        "i": "int64", "f": "double", "b": "bool", "t": "timestamp[us]", "s": "string", "o": "string", "m": "string",
        "e": "string",
    }  # fmt: skip
    found = values(read(path))
    assert [row["o"] for row in found] == ['{"a":[1,2.5]}', '[1,"ø"]']
    assert [row["m"] for row in found] == ["1", "x"]
    assert [row["f"] for row in found] == [1.0, 2.5]
    assert [row["e"] for row in found] == [None, None]


def test_text_and_whole_numbers_come_as_they_are_written(tmp_path: Path) -> None:
    big = 9_007_199_254_740_993
    path = written(tmp_path, f'{{"n": {big}, "m": 1.50}}\n{{"n": -{big}, "m": "x"}}\n')
    assert values(read(path)) == [{"n": big, "m": "1.50"}, {"n": -big, "m": "x"}]


def test_what_does_not_fit_is_set_aside_and_counted(tmp_path: Path) -> None:
    good = "".join(f'{{"at": {at}, "n": {at}}}\n' for at in range(10_000))
    bad = '{"at": 10001, "n": "many"}\n{"at": 10002, "n": 1.5}\n[1]\n{"at": 10003, "n": 3\n5\n{"at": 10004, "n": 4}\n'
    path = written(tmp_path, good + bad)
    batches = read(path, 1 << 20)
    malformed = [(each.row, each.reason, each.raw) for raw in batches for each in raw.malformed]
    assert malformed == [
        (10_003, "no JSON object", "[1]"),
        (10_004, "no JSON object", '{"at": 10003, "n": 3'),
        (10_005, "no JSON object", "5"),
    ]
    with nile.connect() as db:
        db.register("s", path, time="at")
        answer = db.sql("SELECT count(*), sum(n) FROM s")
        assert answer.fetchall() == [(10_001, sum(range(10_000)) + 4)]
        told = answer.accounting["s"]
        assert (told.tuples_in, told.applied, told.rejected) == (10_006, 10_001, 5)


def test_half_a_pair_of_surrogates_and_bytes_that_are_not_utf8_are_rejected(tmp_path: Path) -> None:
    path = written(
        tmp_path, b'{"at": 1, "t": "a"}\n{"at": 2, "t": "\\ud800"}\n{"at": 3, "t": "\xff"}\n{"at": 4, "t": "\\u00f8"}\n'
    )
    with nile.connect() as db:
        db.register("s", path, time="at")
        answer = db.sql("SELECT at, t FROM s")
        assert answer.fetchall() == [(1, "a"), (4, "ø")]
        assert answer.accounting["s"].rejected == 2


def test_files_of_one_stream_have_the_columns_and_types_of_all(tmp_path: Path) -> None:
    written(tmp_path, '{"n": 1, "a": "x"}\n', "1.ndjson")
    written(tmp_path, '{"n": 2.5, "b": true}\n', "2.ndjson")
    db = nile.connect().register("s", f"{tmp_path}/*.ndjson")
    assert sorted(db.sql("SELECT n, a, b FROM s").fetchall()) == [(1.0, "x", None), (2.5, None, True)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "got no object; write one object per line"),
        ('[{"n": 1}]', "got a JSON array"),
        (b"PAR1\0\0", "zero bytes"),
        ("n,t\n1,2\n", "got no object"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: str | bytes, message: str) -> None:
    with pytest.raises(nile.SourceError, match=message):
        nile.connect().register("s", written(tmp_path, content))


def test_a_line_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_lines, "_LONGEST", 1 << 10)
    monkeypatch.setattr(json_lines, "_BLOCK", 1 << 8)
    path = written(tmp_path, '{"n": 1}\n{"n": "' + "x" * 2_000)
    with pytest.raises(nile.SourceError, match="got a line of more than"):
        read(path)


@pytest.mark.parametrize("reader", ["'{}'", "read_json('{}')", "read_ndjson('{}')", "read_json_auto('{}')"])
def test_a_file_in_from(tmp_path: Path, reader: str) -> None:
    path = written(tmp_path, '{"n": 1}\n{"n": 2}\n')
    assert nile.connect().sql(f"SELECT sum(n) FROM {reader.format(path)}").fetchall() == [(3,)]


KINDS: dict[str, Any] = {
    "int": lambda rng: int(rng.integers(-5, 5)),
    "big": lambda rng: int(rng.integers(-(2**62), 2**62)),
    "float": lambda rng: float(round(rng.normal(), 3)) * 10.0 ** int(rng.integers(-9, 9)),
    "text": lambda rng: "".join(rng.choice(list("ab ,;\"'\\\nøπ😀\t|"), int(rng.integers(0, 6)))),
    "instant": lambda rng: f"2024-0{rng.integers(1, 9)}-1{rng.integers(0, 9)}T0{rng.integers(0, 9)}:00:00",
    "truth": lambda rng: bool(rng.integers(2)),
}


@pytest.mark.parametrize("seed", range(25))
def test_random_files_read_as_duckdb_reads_them_and_as_they_do_line_by_line(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(seed)
    kinds = rng.choice(list(KINDS), int(rng.integers(1, 5)))
    lines = []
    for at in range(int(rng.choice([1, 20, 400]))):
        row = {f"c{k}": None if rng.random() < 0.2 else KINDS[kind](rng) for k, kind in enumerate(kinds)}
        kept = {name: value for name, value in row.items() if at == 0 or value is not None or rng.random() < 0.5}
        lines.append(json.dumps({"n": at} | kept, ensure_ascii=bool(rng.integers(2))))
    path = written(tmp_path, "\n".join(lines))
    names = ["n", *(f"c{k}" for k in range(len(kinds)))]
    with fresh_duckdb() as con:
        asked = f"SELECT {', '.join(names)} FROM read_json('{path}', format='newline_delimited')"
        wanted = con.execute(asked).fetchall()
    monkeypatch.setattr(json_lines, "_BLOCK", 1 << 10)
    source = JsonSource(path)
    quick = pa.Table.from_batches([each.batch for each in source.batches(names, 7)])
    monkeypatch.setattr(json_lines, "_at_once", lambda *_: None)
    assert quick.equals(pa.Table.from_batches([each.batch for each in source.batches(names, 7)]))
    assert [tuple(row.values()) for row in quick.to_pylist()] == wanted


@pytest.mark.parametrize("name", ["data.ndjson", "data.csv"])
def test_who_reads_rows_is_warned_of_those_left_out(tmp_path: Path, name: str) -> None:
    lines = [(at, at if at < 11_000 else f"A-{at}") for at in range(12_000)]
    if name.endswith("csv"):
        text = "at,n\n" + "".join(f"{at},{n}\n" for at, n in lines)
    else:
        text = "".join(json.dumps({"at": at, "n": n}) + "\n" for at, n in lines)
    with nile.connect() as db:
        db.register("s", written(tmp_path, text, name), time="at")
        with pytest.warns(
            nile.RowsLeftOut, match=r"s: 1,000 of 12,000 rows left out \(cell of 'n' is no whole number\)"
        ):
            assert len(db.sql("SELECT n FROM s").fetchall()) == 11_000
        with pytest.warns(nile.RowsLeftOut):
            told = db.sql(f"COPY s TO '{tmp_path}/out.parquet'").message
        assert told == (
            f"11,000 rows written to '{tmp_path}/out.parquet'; s: 1,000 of 12,000 rows left out "
            "(cell of 'n' is no whole number)"
        )
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert db.sql("SELECT count(*) FROM s").fetchall() == [(12_000,)]
