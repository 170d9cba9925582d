"""Arrow Flight SQL gives ADBC's driver what the same statements give in the process; strangers are refused."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import adbc_driver_manager
import pyarrow as pa
import pyarrow.flight
import pytest
from adbc_driver_flightsql import dbapi
from served import TOKEN, Served, served
from sql_catalog import connect_catalog
from sql_logic import cells, read_cases

import nile
from nile.server.flight.serve import FlightSql
from nile.server.flight.statements import Held, parameters_of
from nile.server.flight.wire import fields_of, flag, message, numbers, packed, text, texts, unpacked
from nile.summaries.errors import ConfigError, UnknownStream

FILES = sorted((Path(__file__).parents[1] / "sql").glob("*.test"))
BEARER = {"adbc.flight.sql.authorization_header": f"Bearer {TOKEN}"}


@contextmanager
def flying(db: nile.Database, *places: str, **settings: Any) -> Iterator[Served]:
    with served(db, *places, beside=FlightSql, **settings) as up:
        yield up


def address(up: Served) -> str:
    assert up.server.besides is not None
    return f"grpc://127.0.0.1:{up.server.besides.port}"


@contextmanager
def cursor_of(up: Served, **options: str) -> Iterator[Any]:
    with (
        dbapi.connect(address(up), db_kwargs=options or BEARER, autocommit=True) as connection,
        connection.cursor() as cursor,
    ):
        yield cursor


def rows_of(cursor: Any, asked: str) -> list[tuple[Any, ...]]:
    cursor.execute(asked)
    rows: list[tuple[Any, ...]] = cursor.fetchall()
    return rows


@pytest.fixture
def up() -> Iterator[Served]:
    db = nile.connect()
    sold = {"ts": [0.0, 60.0, 90.0], "item": ["tea", "cup", "tea"], "price": [2, 3, None]}
    db.register("sales", sold, time="ts")
    db.stream("s", pa.schema([("ts", pa.float64()), ("k", pa.string())]), time="ts")
    db.sql("CREATE VIEW dear AS SELECT item FROM sales WHERE price > 2")
    with flying(db, str(Path(__file__).parent)) as running:
        yield running


def test_the_statements_of_the_corpus_give_adbc_what_they_give_in_the_process() -> None:
    """Rows as the files say them, which tests/sql holds the process to; columns and errors as the process has them."""
    local = connect_catalog()
    seen = 0
    with flying(connect_catalog(), files=True, rate=1e6, burst=1_000_000) as up, cursor_of(up) as cursor:
        for case in (case for path in FILES for case in read_cases(path) if not case.options):
            seen += 1
            if case.kind == "error":
                with pytest.raises(adbc_driver_manager.Error, match=f"{case.argument}|its log says why"):
                    rows_of(cursor, case.statement)
                continue
            schema = local.sql(case.statement).schema
            cursor.execute(case.statement)
            found = cursor.fetch_arrow_table()
            assert found.schema == schema, case.id
            if case.kind == "ok":
                continue
            rows = [cells(tuple(row.values())) for row in found.to_pylist()]
            assert (rows if case.ordered else sorted(rows)) == (
                list(case.expected) if case.ordered else sorted(case.expected)
            ), case.id
    assert seen >= 400


@pytest.mark.parametrize("options", [BEARER, {"username": "anyone", "password": TOKEN}], ids=["bearer", "password"])
def test_a_driver_shows_the_token_as_a_bearer_or_as_a_password(up: Served, options: dict[str, str]) -> None:
    with cursor_of(up, **options) as cursor:
        cursor.execute("SELECT item, count(*) AS n FROM sales GROUP BY item")
        assert cursor.fetchall() == [("tea", 2), ("cup", 1)]


@pytest.mark.parametrize(
    "options",
    [
        {"adbc.flight.sql.authorization_header": "Bearer another-token-for-tests"},
        {"adbc.flight.sql.authorization_header": f"Basic {TOKEN}"},
        {"username": "anyone", "password": "guessed"},
        {"adbc.flight.sql.rpc.call_header.x-token": TOKEN},
    ],
)
def test_no_token_or_a_wrong_one_is_refused_and_counted(up: Served, options: dict[str, str]) -> None:
    with (
        pytest.raises(adbc_driver_manager.ProgrammingError, match=r"UNAUTHENTICATED.*needed the server's token"),
        cursor_of(up, **options) as cursor,
    ):
        cursor.execute("SELECT item FROM sales")
    assert up.refused["token"] >= 1


def test_values_are_bound_in_order_and_by_name(up: Served) -> None:
    with cursor_of(up) as cursor:
        cursor.execute("SELECT ts FROM sales WHERE price >= ? AND item <> ?", (1, "cup"))
        assert cursor.fetchall() == [(0.0,)]
        cursor.execute("SELECT ts FROM sales WHERE price >= ? AND item <> ?", (3, "tea"))
        assert cursor.fetchall() == [(60.0,)]
        cursor.execute("SELECT ts FROM sales WHERE item = $item", pa.record_batch({"item": ["cup", "tea"]}))
        assert cursor.fetchall() == [(60.0,), (0.0,), (90.0,)]  # of each set of values, one after another
        with pytest.raises(adbc_driver_manager.ProgrammingError, match="needed 2 values"):
            cursor.execute("SELECT ts FROM sales WHERE price >= ? AND item <> ?", (1,))


def test_statements_that_change_something_do_so_once_each_time(up: Served) -> None:
    with cursor_of(up) as cursor:
        cursor.executemany("INSERT INTO s VALUES (?, ?)", [(1.0, "a"), (2.0, "b")])
        assert cursor.rowcount == 2
        cursor.execute("INSERT INTO s VALUES (3.0, 'c')")
        assert cursor.fetchall()[0][0].startswith("1 row")
        assert cursor.adbc_ingest("s", pa.table({"ts": [4.0, 5.0], "k": ["d", "e"]}), mode="append") == 2
        cursor.execute("SELECT k FROM s")
        assert [k for (k,) in cursor.fetchall()] == list("abcde")
        assert up.db.accounting("s").applied == 5


def test_metadata_tells_tables_columns_and_what_the_server_is(up: Served) -> None:
    with dbapi.connect(address(up), db_kwargs=BEARER, autocommit=True) as connection:
        told = connection.adbc_get_info()
        assert (told["vendor_name"], told["vendor_version"]) == ("Nile", nile.__version__)
        assert connection.adbc_get_table_types() == ["SYSTEM TABLE", "TABLE", "VIEW"]
        assert connection.adbc_get_table_schema("sales") == up.db.schema("sales")
        (catalog,) = connection.adbc_get_objects(depth="all").read_all().to_pylist()
        (schema,) = catalog["catalog_db_schemas"]
        kinds = {each["table_name"]: each["table_type"] for each in schema["db_schema_tables"]}
        assert kinds.items() >= {
            "s": "TABLE", "sales": "TABLE", "dear": "VIEW", "nile_queries": "SYSTEM TABLE"
        }.items()  # fmt: skip
        (dear,) = (each for each in schema["db_schema_tables"] if each["table_name"] == "dear")
        assert [column["column_name"] for column in dear["table_columns"]] == ["item"]
        one = connection.adbc_get_objects(depth="tables", table_name_filter="sa%", table_types_filter=["TABLE"])
        (catalog,) = one.read_all().to_pylist()
        assert [each["table_name"] for each in catalog["catalog_db_schemas"][0]["db_schema_tables"]] == ["sales"]


@pytest.mark.parametrize(
    ("command", "columns", "rows"),
    [
        ("CommandGetXdbcTypeInfo", 19, 13),
        ("CommandGetPrimaryKeys", 6, 0),
        ("CommandGetCrossReference", 13, 0),
        ("CommandGetImportedKeys", 13, 0),
        ("CommandGetExportedKeys", 13, 0),
    ],
)
def test_what_jdbc_asks_beside_has_the_columns_of_the_protocol(
    up: Served, command: str, columns: int, rows: int
) -> None:
    with pyarrow.flight.connect(address(up)) as client:
        options = pyarrow.flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {TOKEN}".encode())])
        descriptor = pyarrow.flight.FlightDescriptor.for_command(packed(command))
        info = client.get_flight_info(descriptor, options)
        found = client.do_get(info.endpoints[0].ticket, options).read_all()
        assert found.schema == info.schema == client.get_schema(descriptor, options).schema
        assert (found.num_columns, found.num_rows) == (columns, rows)


def test_the_schema_of_a_statement_is_told_and_nothing_is_run(up: Served) -> None:
    with cursor_of(up) as cursor:
        assert cursor.adbc_execute_schema("SELECT item FROM sales WHERE price > 1").names == ["item"]
        with pytest.raises(adbc_driver_manager.NotSupportedError):
            cursor.adbc_execute_schema("INSERT INTO s VALUES (1.0, 'a')")
        assert up.db.accounting("s").applied == 0


def test_a_statement_is_cancelled_while_its_rows_are_found(up: Served) -> None:
    going = threading.Event()

    def slow() -> Iterator[pa.RecordBatch]:
        for at in range(3):
            if at:
                going.wait(30)
            yield pa.record_batch({"t": [float(at)] * 70_000, "x": [at] * 70_000})

    schema = pa.schema([("t", pa.float64()), ("x", pa.int64())])
    up.db.register("slow", lambda: pa.RecordBatchReader.from_batches(schema, slow()), time="t")
    with cursor_of(up) as cursor:
        cursor.execute("SELECT x FROM slow")
        cutting = threading.Timer(0.3, cursor.adbc_cancel)
        cutting.start()
        with pytest.raises(adbc_driver_manager.Error, match=r"(?i)cancel"):
            cursor.fetchall()
        cutting.join()
    going.set()
    with cursor_of(up) as cursor:
        cursor.execute("SELECT count(*) AS n FROM sales")
        assert cursor.fetchall() == [(3,)]


def test_rows_that_nobody_fetches_are_let_go_of_when_their_statement_is_cancelled(up: Served) -> None:
    server: Any = up.server.besides
    with pyarrow.flight.connect(address(up)) as client:
        options = pyarrow.flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {TOKEN}".encode())])
        asked = packed("CommandStatementQuery", (1, "SELECT item FROM sales"))
        info = client.get_flight_info(pyarrow.flight.FlightDescriptor.for_command(asked), options)
        assert len(server._waiting) == 1
        (said,) = client.do_action(("CancelFlightInfo", message((1, info.serialize()))), options)
        assert numbers(fields_of(said.body.to_pybytes()), 1) == (1,)
        assert len(server._waiting) == 0
        with pytest.raises(pa.ArrowKeyError, match="rows of a statement"):
            client.do_get(info.endpoints[0].ticket, options).read_all()


@pytest.mark.parametrize(
    "body",
    [b"", b"\xff" * 40, b"\x0a\x7f", packed("CommandStatementSubstraitPlan"), message((1, "type.googleapis.com/x.Y"))],
)
def test_commands_that_are_none_are_refused(up: Served, body: bytes) -> None:
    with pyarrow.flight.connect(address(up)) as client:
        options = pyarrow.flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {TOKEN}".encode())])
        with pytest.raises((pa.ArrowInvalid, NotImplementedError), match="Flight: needed"):
            client.get_flight_info(pyarrow.flight.FlightDescriptor.for_command(body), options)


def test_statements_of_strangers_name_no_file_and_messages_no_place(up: Served, tmp_path: Path) -> None:
    with cursor_of(up) as cursor:
        for asked in (f"SELECT * FROM '{tmp_path}/x.parquet'", f"COPY (SELECT item FROM sales) TO '{tmp_path}/x.csv'"):
            with pytest.raises(adbc_driver_manager.Error) as caught:
                cursor.execute(asked)
            assert str(Path(nile.__file__).parents[1]) not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_batches_beyond_the_limit_and_too_many_calls_are_refused() -> None:
    db = nile.connect()
    db.stream("s", pa.schema([("ts", pa.float64())]), time="ts")
    with flying(db, body=10_000, rate=0.001, burst=40) as up, cursor_of(up) as cursor:
        with pytest.raises(adbc_driver_manager.Error, match="at most 10,000 bytes"):
            cursor.adbc_ingest("s", pa.table({"ts": [float(at) for at in range(5_000)]}), mode="append")
        with pytest.raises(adbc_driver_manager.Error, match="too many requests"):
            any(rows_of(cursor, "SELECT ts FROM s") for _ in range(40))
        assert up.refused["large"] == 1
        assert up.refused["rate"] >= 1
        assert db.accounting("s").applied == 0


def test_messages_are_read_as_they_were_written() -> None:
    name, fields = unpacked(packed("CommandGetTables", (3, "sa%"), (4, "TABLE"), (4, "VIEW"), (5, 1)))
    assert (name, text(fields, 3), texts(fields, 4), flag(fields, 5)) == (
        "CommandGetTables", "sa%", ("TABLE", "VIEW"), True,
    )  # fmt: skip
    assert numbers(fields_of(message((1, b"\x01\xac\x02"), (1, 7))), 1) == (1, 300, 7)
    assert text(fields, 9) is None
    for broken in (b"\x80", b"\x80" * 11, b"\x0a\x05abc", b"\x0b", message((1, b"\xff"))):
        with pytest.raises(ConfigError, match="needed a message"):
            text(fields_of(broken), 1)


def test_the_parameters_of_a_statement_are_those_outside_of_text() -> None:
    assert parameters_of("SELECT '?' FROM s WHERE a = ? AND b > ? -- ?") == ("1", "2")
    assert parameters_of("SELECT x FROM s WHERE a = $2 OR a = $1 OR b = $2") == ("1", "2")
    assert parameters_of("SELECT x FROM s WHERE a = $low") == ("low",)


def test_what_is_held_has_an_end() -> None:
    held: Held[int] = Held("a number", 2)
    first, second = held.keep(1), held.keep(2)
    assert held.get(first) == 1
    third = held.keep(3)
    assert (held.get(first), held.get(third), held.pop(second)) == (1, 3, None)
    with pytest.raises(UnknownStream, match=re.escape("needed a number that is here")):
        held.get(second)
