"""CSV: what is read, what is set aside, what is refused."""

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nile.base.raw import RawBatch
from nile.streams.files import csv
from nile.streams.files.csv import CsvSource, infer_types
from nile.summaries.errors import SourceError, SourceMissing, UnknownColumn


def written(folder: Path, content: bytes | str) -> Path:
    path = folder / "data.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def read(path: Path, rows: int = 100) -> list[RawBatch]:
    source = CsvSource(path)
    return list(source.batches(source.schema.names, rows))


def values(batches: list[RawBatch]) -> list[dict[str, object]]:
    return [row for raw in batches for row in raw.batch.to_pylist()]


def malformed(batches: list[RawBatch]) -> list[tuple[int, str, str]]:
    return [(bad.row, bad.reason, bad.raw) for raw in batches for bad in raw.malformed]


@pytest.mark.parametrize(
    "content",
    [
        "n,t\n1,x\n2,y\n",
        "n,t\n1,x\n2,y",
        "n,t\r\n1,x\r\n2,y\r\n",
        "n,t\r1,x\r2,y\r",
        "\ufeffn,t\n1,x\n2,y\n",
        '"n","t"\n"1","x"\n"2","y"\n',
        "\n\nn,t\n\n1,x\n\n\n2,y\n\n",
    ],
)
def test_line_ends_marks_quotes_and_blank_lines_do_not_matter(tmp_path: Path, content: str) -> None:
    batches = read(written(tmp_path, content))
    assert values(batches) == [{"n": 1, "t": "x"}, {"n": 2, "t": "y"}]
    assert malformed(batches) == []


def test_quoted_cells_may_hold_commas_quotes_and_line_ends(tmp_path: Path) -> None:
    batches = read(written(tmp_path, 'n,t\n1,"a,b"\n2,"say ""so"""\n3,"two\nlines"\n4,5" pipe\n'))
    assert [row["t"] for row in values(batches)] == ["a,b", 'say "so"', "two\nlines", '5" pipe']


def test_an_empty_cell_is_null_quoted_or_not(tmp_path: Path) -> None:
    batches = read(written(tmp_path, 'n,t\n,\n"",""\n1,x\n'))
    assert values(batches)[:2] == [{"n": None, "t": None}] * 2


def test_types_come_from_the_first_rows_and_a_later_misfit_is_marked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv, "INFER_ROWS", 2)
    path = written(tmp_path, "n,x,b,ts,t\n1,1.5,true,2011-01-01,a\n2,2,false,2011-01-02 10:00,b\nx,x,x,x,x\n")
    assert infer_types(path) == pa.schema(
        [("n", pa.int64()), ("x", pa.float64()), ("b", pa.bool_()), ("ts", pa.timestamp("us")), ("t", pa.string())]
    )
    (raw,) = read(path)
    assert {name: flags.tolist() for name, flags in raw.misfits.items()} == {
        name: [False, False, True] for name in ("n", "x", "b", "ts")
    }
    assert raw.text is not None
    assert raw.text.to_pylist()[2] == dict.fromkeys(("n", "x", "b", "ts", "t"), "x")


def test_a_line_with_the_wrong_number_of_fields_is_set_aside_with_its_place(tmp_path: Path) -> None:
    batches = read(written(tmp_path, "n,t\n1,x\n2\n3,y\n4,z,w\n\n5,q\n"))
    assert malformed(batches) == [(2, "wrong number of fields", "2"), (4, "wrong number of fields", "4,z,w")]
    assert [row for raw in batches for row in raw.rows.tolist()] == [1, 3, 5]


def test_a_file_of_bad_lines_alone_gives_them_all(tmp_path: Path) -> None:
    batches = read(written(tmp_path, "n,t\n1\n2\n"))
    assert values(batches) == []
    assert [row for row, _, _ in malformed(batches)] == [1, 2]


def test_bytes_that_are_not_utf8_are_set_aside_not_merged(tmp_path: Path) -> None:
    (raw,) = read(written(tmp_path, b"n,t\n1,caf\xe9\n2,caf\xe8\n3,caf\xc3\xa9\n4\xff\n"))
    assert raw.batch["t"].to_pylist() == [None, None, "caf\u00e9"]
    assert raw.misfits["t"].tolist() == [True, True, False]
    assert malformed([raw]) == [(4, "wrong number of fields", "4\ufffd")]


def test_a_header_alone_is_an_empty_stream_of_text(tmp_path: Path) -> None:
    for content in ("n,t\n", "n,t"):
        path = written(tmp_path, content)
        assert infer_types(path) == pa.schema([("n", pa.string()), ("t", pa.string())])
        assert values(read(path)) == []


def test_one_column_is_enough(tmp_path: Path) -> None:
    batches = read(written(tmp_path, "n\n1\n2,3\n\n4"))
    assert [row["n"] for row in values(batches)] == [1, 4]
    assert malformed(batches) == [(2, "wrong number of fields", "2,3")]


def test_only_the_asked_columns_are_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv, "INFER_ROWS", 1)
    source = CsvSource(written(tmp_path, "n,t\n1,x\nbad,y\n"))
    (raw,) = source.batches(["t"], 10)
    assert raw.misfits == {}
    assert raw.batch.schema.names == ["t"]


def test_a_file_can_be_read_again(tmp_path: Path) -> None:
    source = CsvSource(written(tmp_path, "n\n1\n2\n"))
    assert [len(list(source.batches(["n"], 1))) for _ in range(2)] == [2, 2]


CELL = st.sampled_from(["1", "x", "", "a b", '"q,\n"', '"say ""so"""', "caf\u00e9", "2011-01-01", '5"'])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(st.lists(st.lists(CELL, min_size=1, max_size=4), max_size=12), st.integers(64, 200), st.integers(1, 9))
def test_blocks_and_batch_sizes_do_not_change_what_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: list[list[str]], block: int, rows: int
) -> None:
    path = written(tmp_path, "a,b\n" + "".join(",".join(cells) + "\n" for cells in lines))
    monkeypatch.setattr(csv, "_BLOCK", 1 << 20)
    whole = read(path, 1_000)
    monkeypatch.setattr(csv, "_BLOCK", block)
    pieces = read(path, rows)
    assert values(pieces) == values(whole)
    assert sorted(malformed(pieces)) == sorted(malformed(whole))
    assert [n for raw in pieces for n in raw.rows.tolist()] == [n for raw in whole for n in raw.rows.tolist()]
    assert all(len(raw.batch) <= rows for raw in pieces)
    numbers = [n for raw in whole for n in raw.rows.tolist()] + [row for row, _, _ in malformed(whole)]
    assert sorted(numbers) == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty; needed a header line"),
        (b"\n \r\n", "the file is empty; needed a header line"),
        (b"\xef\xbb\xbf", "the file is empty; needed a header line"),
        (b"1,2\n3,4\n", "needed a header line with the column names, got '1,2'"),
        (b"2011-01-01,5\n", "needed a header line"),
        (b"PAR1abc", "not a CSV file"),
        ("a,b\n1,2\n".encode("utf-16"), "not a CSV file in UTF-8"),
        (b'a,b\n1,"x\n2,y\n', "opened and never closed"),
        (b'a,b\n1,2\n"3,y\n4,z\n', "opened and never closed"),
        (b'"a,b\n1,2\n', "cannot be read as CSV|opened and never closed"),
    ],
)
def test_a_file_that_is_no_csv_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = written(tmp_path, content)
    with pytest.raises(SourceError, match=message) as error:
        read(path)
    assert str(error.value).startswith(str(path))


def test_a_quote_left_open_in_a_large_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv, "_BLOCK", 1 << 10)
    with pytest.raises(SourceError, match="a double quote is opened and never closed"):
        read(written(tmp_path, 'a,b\n1,"x\n' + "2,y\n" * 1_000))


def test_missing_files_and_directories_are_named(tmp_path: Path) -> None:
    written(tmp_path, "a\n1\n")
    with pytest.raises(SourceMissing, match=r"there is nothing of that name; did you mean 'data\.csv'"):
        infer_types(tmp_path / "date.csv")
    with pytest.raises(FileNotFoundError):
        infer_types(tmp_path / "elsewhere" / "x.csv")
    with pytest.raises(SourceError, match="needed a CSV file, got a directory"):
        infer_types(tmp_path)


def test_a_column_that_is_not_there_or_there_twice_is_refused(tmp_path: Path) -> None:
    source = CsvSource(written(tmp_path, "item_id,a,a\nx,1,2\n"))
    with pytest.raises(UnknownColumn, match="no column 'item'; did you mean 'item_id'"):
        list(source.batches(["item"], 5))
    with pytest.raises(UnknownColumn, match="needed one column 'a', found 2"):
        list(source.batches(["a"], 5))


@pytest.mark.parametrize("mark", [";", "\t", "|"])
def test_other_marks_than_commas_between_names_are_refused(tmp_path: Path, mark: str) -> None:
    with pytest.raises(SourceError, match="needed a header line with ',' between the column names; got"):
        read(written(tmp_path, f"n{mark}t\n1{mark}2,5\n"))
    assert values(read(written(tmp_path, f'"n{mark}t"\n1\n'))) == [{f"n{mark}t": 1}]
    assert values(read(written(tmp_path, f"n{mark},t\n1,2\n"))) == [{f"n{mark}": 1, "t": 2}]
