"""From rows to ordered tuples: what is given on, what is set aside, and that nothing is lost between."""

import datetime as dt
import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nile.expressions.conditions import parse_condition
from nile.streams import manager as streams_manager
from nile.streams.files import csv
from nile.streams.manager import StreamManager, StreamSpec, TupleBatch
from nile.summaries.errors import (
    ConfigError,
    ExpressionError,
    KeyTypeError,
    SourceError,
    SourceMissing,
    TimestampOrderError,
    UnknownColumn,
)

SECOND = 10**9


def manager(source: Any, *, where: str | None = None, lateness: int | None = None, **spec: str) -> StreamManager:
    condition = None if where is None else parse_condition(where, where="where")
    columns = {"time": "ts", "key": "key", **spec}
    return StreamManager(StreamSpec("store1", source, where=condition, lateness=lateness, **columns))


@pytest.fixture(autouse=True, scope="module")
def patient() -> Iterator[None]:
    """No batch comes early because a busy machine kept the source waiting."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(streams_manager, "_SLOW", math.inf)
        yield


def tuples(stream: StreamManager, rows: int = 65_536) -> list[tuple[int, Any]]:
    """All (ts, key), with what must hold of every batch checked on the way."""
    found: list[tuple[int, Any]] = []
    batches: list[TupleBatch] = []
    for batch in stream.batches(rows):
        stream.accounting.check()
        assert batch.ordinal == len(found)
        assert batch.ts.dtype == np.int64
        assert batch.ts.flags.c_contiguous
        assert batch.ts.flags.writeable
        assert len(batch) == len(batch.ts) == len(batch.key)
        batches.append(batch)
        found += zip(batch.ts.tolist(), batch.key.to_pylist(), strict=True)
    assert [len(batch) for batch in batches[:-1]] == [rows] * (len(batches) - 1)
    assert all(0 < len(batch) <= rows for batch in batches)
    stream.accounting.check()
    assert stream.accounting.applied == len(found)
    assert len(stream.quarantine()) == stream.accounting.rejected
    assert len(stream.late()) == stream.accounting.late
    return found


def quarantined(stream: StreamManager) -> list[tuple[int, str, str]]:
    return [(row["row"], row["reason"], row["raw"]) for row in stream.quarantine().to_pylist()]


def test_rows_become_tuples_numbered_from_zero() -> None:
    stream = manager({"ts": [1, 2, 2], "key": ["a", None, "b"]})
    assert tuples(stream, rows=2) == [(SECOND, "a"), (2 * SECOND, None), (2 * SECOND, "b")]
    assert stream.key_type == pa.string()
    assert stream.quarantine().schema == pa.schema([("reason", "string"), ("row", "int64"), ("raw", "string")])


def test_rows_that_where_does_not_select_are_no_part_of_the_stream() -> None:
    data = {"ts": [1.0, math.nan, 2.0, None], "key": [1, 2, 3, 4], "store": [0, 1, None, 1]}
    stream = manager(data, where="store = 0")
    assert tuples(stream) == [(SECOND, 1)]
    assert stream.accounting.tuples_in == 1
    assert quarantined(stream) == []


def test_rows_without_a_usable_time_are_set_aside_with_the_reason() -> None:
    data = {"ts": [1.0, None, math.nan, math.inf, -math.inf, 1e300, 2.5], "key": list("abcdefg")}
    stream = manager(data)
    assert tuples(stream) == [(SECOND, "a"), (2_500_000_000, "g")]
    assert stream.accounting.reasons == {
        "null time": 1,
        "NaN time": 1,
        "infinite time": 2,
        "time out of range": 1,
    }
    assert quarantined(stream)[:2] == [(2, "null time", "ts=null, key=b"), (3, "NaN time", "ts=nan, key=c")]


def test_text_times_are_read_or_set_aside() -> None:
    stream = manager({"ts": ["1970-01-01", "yesterday", "", "1970-01-02T00:00Z", "90000.5"], "key": [1, 2, 3, 4, 5]})
    assert [ts for ts, _ in tuples(stream)] == [0, 86_400 * SECOND, 90_000_500_000_000]
    assert quarantined(stream) == [
        (2, "unparsable time", "ts=yesterday, key=2"),
        (3, "null time", "ts=, key=3"),
    ]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([dt.datetime(1970, 1, 1, 0, 0, second) for second in (1, 2)], pa.timestamp(unit, zone))
        for unit in ("s", "ms", "us", "ns")
        for zone in (None, "UTC", "Asia/Kolkata")
    ]
    + [pa.array([1, 2], kind) for kind in (pa.int8(), pa.int64(), pa.uint64(), pa.float32(), pa.float64())],
    ids=lambda column: str(column.type),
)
def test_a_time_column_of_any_type_gives_nanoseconds(column: pa.Array) -> None:
    assert tuples(manager({"ts": column, "key": ["a", "b"]})) == [(SECOND, "a"), (2 * SECOND, "b")]


def test_disorder_without_a_lateness_is_an_error_that_says_where_and_what_to_do() -> None:
    start = dt.datetime(2011, 12, 9, 8, 0)
    minutes = [0, 1, 3, 1]
    stream = manager({"ts": [start + dt.timedelta(minutes=m) for m in minutes], "key": list("abcd")})
    with pytest.raises(TimestampOrderError) as error:
        list(stream.batches())
    assert str(error.value) == (
        "stream 'store1': tuple 3 (row 4) has ts 2011-12-09 08:01, before 08:03 already read; "
        "sort the source, or set lateness='2 min' or more"
    )


@pytest.mark.parametrize("rows", [1, 2, 3, 100])
def test_disorder_is_noticed_between_batches_too(rows: int) -> None:
    stream = manager({"ts": [5, 6, 4], "key": [1, 2, 3]})
    with pytest.raises(TimestampOrderError, match=r"tuple 2 .* has ts 1970-01-01 00:00:04, before 00:00:06 already"):
        list(stream.batches(rows))


def test_ties_keep_the_order_of_arrival() -> None:
    data = {"ts": [5, 3, 5, 3, 4], "key": list("abcde")}
    assert [key for _, key in tuples(manager(data, lateness=2 * SECOND))] == list("bdeac")


def test_a_tuple_at_the_watermark_is_in_time_and_one_before_it_is_late() -> None:
    stream = manager({"ts": [10, 8, 7, 10, 9], "key": list("abcde")}, lateness=2 * SECOND)
    assert [key for _, key in tuples(stream, rows=1)] == list("bead")
    assert stream.accounting.late == 1
    assert stream.late().to_pylist() == [{"row": 3, "ts": dt.datetime(1970, 1, 1, 0, 0, 7), "key": "c"}]


def test_a_lateness_of_zero_drops_every_straggler() -> None:
    stream = manager({"ts": [1, 3, 2, 3], "key": [1, 2, 3, 4]}, lateness=0)
    assert [key for _, key in tuples(stream)] == [1, 2, 4]
    assert stream.late()["key"].to_pylist() == [3]


def brute_force(
    times: Sequence[float | None], selected: Sequence[bool | None], lateness: int
) -> tuple[list[int], list[int], list[int]]:
    """Positions (applied in order, late, rejected), one row at a time."""
    applied, late, rejected, largest = [], [], [], None
    for at, (time, chosen) in enumerate(zip(times, selected, strict=True)):
        if not chosen:
            continue
        if time is None or not math.isfinite(time):
            rejected.append(at)
            continue
        ns = round(time * SECOND)
        if largest is not None and ns < largest - lateness:
            late.append(at)
            continue
        largest = ns if largest is None else max(largest, ns)
        applied.append((ns, at))
    return [at for _, at in sorted(applied)], late, rejected


ROW = st.tuples(
    st.sampled_from([0.0, 1.0, 2.0, 2.5, 3.0, 5.0, 8.0, 13.0, None, math.nan, math.inf]),
    st.sampled_from(["a", "b", None]),
    st.sampled_from([True, True, True, False, None]),
)


@settings(max_examples=150, deadline=None)
@given(
    rows=st.lists(ROW, max_size=40),
    lateness=st.sampled_from([0, 1, 2, 5, 100]),
    cuts=st.lists(st.integers(0, 40), max_size=6),
    size=st.integers(1, 12),
    encoded=st.booleans(),
)
def test_the_stream_is_the_brute_force_one_however_its_input_is_split(
    rows: list[tuple[float | None, str | None, bool | None]], lateness: int, cuts: list[int], size: int, encoded: bool
) -> None:
    table = pa.table(
        {
            "ts": pa.array([row[0] for row in rows], pa.float64()),
            "key": pa.array([row[1] for row in rows], pa.string()),
            "at": pa.array(range(len(rows)), pa.int64()),
            "flag": pa.array([row[2] for row in rows], pa.bool_()),
        }
    )
    edges = sorted({0, len(rows), *(cut for cut in cuts if cut < len(rows))})
    pieces = [table.slice(a, b - a) for a, b in pairwise(edges)] or [table]
    if encoded:
        pieces = [piece.set_column(1, "key", piece["key"].dictionary_encode()) for piece in pieces]
    applied, late, rejected = brute_force([row[0] for row in rows], [row[2] for row in rows], lateness * SECOND)

    by_position = manager(pieces, where="flag", lateness=lateness * SECOND, key="at")
    assert [key for _, key in tuples(by_position, size)] == applied
    assert by_position.late()["row"].to_pylist() == [at + 1 for at in late]
    assert by_position.quarantine()["row"].to_pylist() == [at + 1 for at in rejected]
    assert by_position.accounting.tuples_in == len(applied) + len(late) + len(rejected)

    by_text = manager(pieces, where="flag", lateness=lateness * SECOND)
    assert [key for _, key in tuples(by_text, size)] == [rows[at][1] for at in applied]


def test_a_long_disordered_stream_equals_the_sorted_one() -> None:
    chance = np.random.default_rng(0)
    ts = np.arange(50_000) * 10 + chance.integers(0, 500, 50_000)
    stream = manager(
        pa.table({"ts": pa.array(ts, pa.timestamp("ns")), "key": np.arange(50_000)}).to_batches(max_chunksize=777),
        lateness=500,
    )
    order = np.argsort(ts, kind="stable")
    assert tuples(stream, rows=1_000) == list(zip(ts[order].tolist(), order.tolist(), strict=True))


CSV = """\
ts,key,vstore,note
2011-01-01 10:00,a,0,x
2011-01-01 10:01,b,1,x
2011-01-01 10:02,c,0,x
"""


def test_a_csv_with_every_kind_of_bad_row_loses_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv, "INFER_ROWS", 3)
    path = tmp_path / "data.csv"
    bad = ["2011-01-01 10:03,d,zero,x", "not a time,e,0,x", "not a time,f,1,x", ",g,0,x", "2011-01-01 10:04,h", "2011"]
    path.write_bytes((CSV + "\n".join(bad) + "\n2011-01-01 10:05,caf").encode() + b"\xe9,0,x\n2011-01-01 10:06,i,0,x\n")
    stream = manager(path, where="vstore = 0")
    assert [key for _, key in tuples(stream)] == ["a", "c", "i"]
    assert quarantined(stream) == [
        (4, "cell of 'vstore' is no whole number", "ts=2011-01-01 10:03, key=d, vstore=zero"),
        (5, "unparsable time", "ts=not a time, key=e, vstore=0"),
        (7, "null time", "ts=, key=g, vstore=0"),
        (8, "wrong number of fields", "2011-01-01 10:04,h"),
        (9, "wrong number of fields", "2011"),
        (10, "cell of 'key' is no UTF-8 text", "ts=2011-01-01 10:05, key=caf\ufffd, vstore=0"),
    ]
    assert stream.accounting.tuples_in == 9


def test_a_misfit_in_a_column_that_is_not_needed_does_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv, "INFER_ROWS", 3)
    path = tmp_path / "data.csv"
    path.write_text(CSV + "2011-01-01 10:03,d,zero,x\n")
    stream = manager(path)
    assert [key for _, key in tuples(stream)] == ["a", "b", "c", "d"]


@pytest.mark.parametrize("size", [1, 2, 5, 100])
def test_a_csv_gives_the_same_whatever_the_batch_size(tmp_path: Path, size: int) -> None:
    path = tmp_path / "data.csv"
    path.write_text(CSV + "x,y\n" + CSV.removeprefix("ts,key,vstore,note\n").replace(" 10:", " 11:") + ",z,0,\n")
    stream = manager(path)
    assert [key for _, key in tuples(stream, size)] == list("abcabc")
    assert [(row, reason) for row, reason, _ in quarantined(stream)] == [
        (4, "wrong number of fields"),
        (8, "null time"),
    ]


def test_each_reading_starts_the_accounts_anew() -> None:
    stream = manager({"ts": [1.0, None], "key": [1, 2]})
    for _ in range(2):
        assert len(tuples(stream)) == 1
        assert stream.accounting.tuples_in == 2


def test_a_reading_given_up_halfway_leaves_balanced_accounts() -> None:
    stream = manager({"ts": list(range(100)), "key": list(range(100))}, lateness=5 * SECOND)
    for batch in stream.batches(10):
        assert len(batch) == 10
        break
    stream.accounting.check()
    assert stream.accounting.applied == 10


def test_an_empty_stream_gives_no_batches() -> None:
    for lateness in (None, 5):
        stream = manager(
            pa.table({"ts": pa.array([], pa.int64()), "key": pa.array([], pa.string())}), lateness=lateness
        )
        assert tuples(stream) == []


def test_a_stream_that_is_all_rejected_says_so() -> None:
    stream = manager({"ts": [math.nan] * 5, "key": list("abcde")})
    assert tuples(stream) == []
    assert stream.accounting.reasons == {"NaN time": 5}


@pytest.mark.parametrize(
    "keys",
    [
        pa.array([1, None], pa.int8()),
        pa.array([1.5, math.nan]),
        pa.array(["a", None]).dictionary_encode(),
        pa.array([b"\xff", None]),
        pa.array([True, False]),
        pa.array([dt.date(2011, 1, 1), None]),
        pa.array([dt.datetime(2011, 1, 1), None]),
        pa.array([1, 2], pa.time32("s")),
        pa.array([1, 2], pa.decimal128(9, 2)),
        pa.array(["a", "b"], pa.large_string()),
        pa.nulls(2),
    ],
    ids=lambda keys: str(keys.type),
)
def test_keys_of_many_types_pass_untouched(keys: pa.Array) -> None:
    stream = manager({"ts": [1, 2], "key": keys})
    (batch,) = stream.batches()
    assert batch.key.type == keys.type
    assert str(batch.key.to_pylist()) == str(keys.to_pylist())
    late = manager({"ts": [2, 1], "key": keys}, lateness=0)
    assert len(tuples(late)) == 1


def test_a_dictionary_larger_than_a_batch_is_left_out_and_mixes_with_smaller_ones() -> None:
    large = pa.DictionaryArray.from_arrays(pa.array([0, 5], pa.int32()), pa.array(list("abcdefgh")))
    small = pa.array(["x", "f"]).dictionary_encode()
    pieces = [{"ts": [1, 2], "key": large}, {"ts": [2, 3], "key": small}, {"ts": [0, 4], "key": large}]
    for rows in (1, 3, 4, 100):
        found = [key for _, key in tuples(manager(pieces, lateness=5 * SECOND), rows)]
        assert found == ["a", "a", "f", "x", "f", "f"]


def test_a_broken_row_with_bytes_or_lists_can_still_be_shown() -> None:
    data = pa.table({"ts": pa.array([None], pa.int64()), "key": [b"\xff"], "l": [[1, 2]]})
    stream = manager(data, where="l IS NOT NULL")
    assert tuples(stream) == []
    assert quarantined(stream) == [(1, "null time", "ts=null, key=b'\\xff', l=[1, 2]")]


@pytest.mark.parametrize(
    ("spec", "error", "message"),
    [
        ({"time": "tss"}, UnknownColumn, "stream 'store1': there is no column 'tss'; did you mean 'ts'"),
        ({"key": "kee"}, UnknownColumn, "there is no column 'kee'; did you mean 'key'"),
        ({"where": "sore = 1"}, UnknownColumn, "there is no column 'sore'; did you mean 'store'"),
        ({"where": "store = 'x'"}, ExpressionError, "write the number without quotes"),
        ({"time": "flag"}, SourceError, "time column 'flag': needed a timestamp"),
        ({"key": "list"}, KeyTypeError, "key column 'list': needed numbers, text"),
        ({"lateness": -1}, ConfigError, "needed a lateness of 0 to"),
    ],
)
def test_a_specification_that_does_not_fit_is_refused_before_reading(
    spec: dict[str, Any], error: type[Exception], message: str
) -> None:
    table = pa.table({"ts": [1], "key": ["a"], "store": [1], "flag": [True], "list": [[1]]})
    with pytest.raises(error, match=message):
        manager(table, **spec)


def test_files_that_are_no_streams_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceMissing, match="there is nothing of that name"):
        manager(tmp_path / "none.parquet")
    with pytest.raises(SourceError, match="got a directory"):
        manager(tmp_path)
    for name in ("empty.parquet", "empty.csv"):
        (tmp_path / name).touch()
        with pytest.raises(SourceError, match="the file is empty"):
            manager(tmp_path / name)
    pq.write_table(pa.table({"ts": [1], "key": [1]}), tmp_path / "whole.parquet")
    (tmp_path / "cut.parquet").write_bytes((tmp_path / "whole.parquet").read_bytes()[:-9])
    with pytest.raises(SourceError, match="cut short"):
        manager(tmp_path / "cut.parquet")


def test_no_rows_a_batch_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least 1 row per batch"):
        list(manager({"ts": [1], "key": [1]}).batches(0))


RETAIL = Path(__file__).parents[3] / "shared/data/retail_uci.parquet"


@pytest.mark.skipif(not RETAIL.exists(), reason="the UCI retail file is not here")
def test_the_uci_retail_stream_is_in_order_and_whole() -> None:
    stream = manager(RETAIL, key="item_id", where="vstore IN (0, 1)")
    total = sum(len(batch) for batch in stream.batches())
    vstores = pq.read_table(RETAIL, columns=["vstore"])["vstore"].to_numpy()
    assert total == int(np.isin(vstores, [0, 1]).sum())
    assert stream.accounting.rejected == 0
