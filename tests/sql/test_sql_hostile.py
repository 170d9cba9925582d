"""Nothing that a statement can say reaches a file, the network or code, or exhausts the machine."""

from __future__ import annotations

import time
import tracemalloc
from typing import Any
from unittest import mock

import pytest
from sql_catalog import CATALOG

import nile
from nile.expressions.tokens import split_statements
from nile.sql.reading_statements import read_statement
from nile.summaries import heavy
from nile.summaries.errors import NileError, SqlError

STATEMENTS = """
ATTACH 'file.db'
ATTACH DATABASE 'file.db' AS f (TYPE sqlite)
DETACH f
COPY rooms FROM 'file.csv'
COPY (SELECT * FROM rooms) TO 'file.parquet' (FORMAT json)
EXPORT DATABASE 'dir'
IMPORT DATABASE 'dir'
INSTALL httpfs
LOAD httpfs
LOAD 'library.so'
FORCE INSTALL spatial
PRAGMA database_list
PRAGMA enable_external_access
SET enable_external_access = true
SET GLOBAL threads = 1000000
RESET threads
CALL pragma_version()
USE other
CHECKPOINT
VACUUM
ANALYZE rooms
BEGIN TRANSACTION
COMMIT
ROLLBACK
INSERT INTO rooms VALUES ('x', 1)
INSERT INTO rooms SELECT * FROM rooms
UPDATE rooms SET floor = 0
DELETE FROM rooms
TRUNCATE rooms
MERGE INTO rooms USING rooms ON TRUE WHEN MATCHED THEN DELETE
DROP TABLE rooms
DROP SCHEMA main CASCADE
DROP DATABASE main
ALTER TABLE rooms ADD COLUMN x INT
CREATE TABLE t AS SELECT * FROM rooms
CREATE TEMP TABLE t (x INT)
CREATE TEMP VIEW v AS SELECT * FROM rooms
CREATE VIEW main.v AS SELECT * FROM rooms
CREATE VIEW v AS SELECT * FROM v
CREATE VIEW v AS SELECT * FROM read_csv('x')
CREATE FUNCTION f(x) AS x
CREATE MACRO f(x) AS TABLE SELECT * FROM read_csv(x)
CREATE SECRET s (TYPE s3, KEY_ID 'x')
CREATE INDEX i ON rooms (room)
CREATE SCHEMA s
CREATE TYPE t AS ENUM ('a')
CREATE SEQUENCE s
CREATE EXTENSION x
CREATE LANGUAGE plpython3u
CREATE STREAM s FROM read_csv('x')
CREATE STREAM s FROM (SELECT * FROM rooms)
CREATE STREAM s FROM 'x' WHERE read_text('secret') = 'x'
CREATE STREAM s FROM 'x' WHERE (SELECT 1) = 1
CREATE STREAM s FROM 'x'; DROP STREAM store1
CREATE SUMMARY s ON store1 (item_id) WITH GRANULARITY 3600 AND COLLAPSE (4, 3) USING __class__ = 1
CREATE SUMMARY s ON store1 (item_id) WITH GRANULARITY 3600 AND COLLAPSE (4, 3) USING seed = __import__('os')
GRANT ALL ON rooms TO x
REVOKE ALL ON rooms FROM x
EXECUTE p
PREPARE p AS SELECT 1
DEALLOCATE p
DECLARE c CURSOR FOR SELECT 1
FETCH ALL FROM c
KILL 1
SHUTDOWN
SHOW ALL TABLES
SHOW DATABASES
SHOW VARIABLES
DESCRIBE SELECT * FROM 'file.csv'
EXPLAIN COPY rooms TO 'x'
EXPLAIN DROP STREAM store1
EXPLAIN EXPLAIN SELECT 1 FROM rooms
EXPLAIN ANALYZE INSERT INTO rooms VALUES (1)
TABLE rooms
PIVOT rooms ON room USING sum(floor)
UNPIVOT rooms ON floor
DO $$ BEGIN END $$
LISTEN x
NOTIFY x
COMMENT ON TABLE rooms IS 'x'
WITH t AS (SELECT * FROM 'file.csv') SELECT * FROM t
WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT * FROM t
SELECT * FROM rooms; DROP STREAM store1
SELECT * FROM rooms;; SELECT 1 FROM rooms
SELECT * INTO OUTFILE 'x' FROM rooms
SELECT * INTO t FROM rooms
SELECT * FROM rooms FOR UPDATE
SELECT * FROM rooms INTO DUMPFILE 'x'
SELECT @@version
SELECT $$text$$ FROM rooms
SELECT E'\\x41' FROM rooms
SELECT {fn now()} FROM rooms
SELECT {{ secret }} FROM rooms
SELECT {% if x %} 1 {% endif %} FROM rooms
SELECT /*+ HINT(x) */ secret FROM rooms
SELECT `room` FROM rooms
SELECT room FROM rooms LIMIT (SELECT 1)
SELECT room FROM rooms LIMIT 1e9
SELECT room FROM rooms LIMIT -1
SELECT room FROM rooms OFFSET -1
SELECT room FROM rooms LIMIT 99999999999999999999
SELECT room FROM rooms TABLESAMPLE 10 %
SELECT room FROM rooms USING SAMPLE 10
SELECT TOP 5 room FROM rooms
SELECT room FROM rooms GROUP BY ROLLUP ()
SELECT room FROM rooms GROUP BY GROUPING SETS (room) WITH TOTALS
SELECT room FROM rooms AT (VERSION => 1)
SELECT room FROM rooms AS r(a, b)
SELECT * LIKE 'r%' FROM rooms
""".strip().split("\n")

SOURCES = """
'file.csv'
'http://host/file.parquet'
's3://bucket/*.parquet'
"file.csv"
"/etc/passwd"
main.rooms
information_schema.tables
pg_catalog.pg_class
sqlite_master
duckdb_settings()
read_csv('x')
read_csv_auto('x')
read_parquet('x')
read_json('x')
read_text('x')
read_blob('x')
parquet_scan('x')
parquet_metadata('x')
glob('*')
sniff_csv('x')
sqlite_scan('x', 'y')
postgres_scan('x', 'y', 'z')
mysql_query('x', 'y')
iceberg_scan('x')
delta_scan('x')
arrow_scan(1, 2, 3)
python_map_function()
query('SELECT 1')
query_table('rooms')
range(1000000000)
generate_series(1, 1000000000)
repeat('x', 1000000000)
UNNEST(rooms)
LATERAL (SELECT 1)
(SELECT * FROM read_csv('x')) AS t
(COPY rooms TO 'x') AS t
(DELETE FROM rooms RETURNING *) AS t
(FROM 'file.csv') AS t
(rooms)
rooms PIVOT (sum(floor) FOR room IN ('a'))
rooms CROSS JOIN LATERAL (SELECT 1) x
rooms, read_csv('x')
rooms JOIN 'file.csv' ON TRUE
rooms NATURAL JOIN items
rooms ASOF JOIN items ON TRUE
rooms POSITIONAL JOIN items
store1 [RANGE 5] [RANGE 6]
store1 [ROWS -1]
store1 [ROWS 99999999999]
store1 [ROWS 1.5]
store1 [RANGE '1 month']
store1 [RANGE 5 WHERE read_text('x') = 'y']
store1 [RANGE 5 WHERE]
store1 [1]
[1, 2]
{'a': 1}
$x
?
""".strip().split("\n")

EXPRESSIONS = """
read_text('secret')
read_blob('secret')
read_csv('secret')
getenv('HOME')
getvariable('x')
current_setting('x')
set_config('a', 'b', false)
pg_read_file('/etc/passwd')
pg_sleep(100)
sleep(100)
load_file('x')
load_extension('x')
lo_import('x')
dblink('x')
xp_cmdshell('ls')
shell('ls')
system('ls')
exec('ls')
eval('1')
sys_eval('1')
__import__('os')
open('x')
java_method('java.lang.Runtime', 'exec')
reflect('java.lang.System', 'getenv')
xpath('x', 'y')
UTL_HTTP.REQUEST('x')
http_get('x')
curl('x')
nextval('s')
current_database()
current_user
session_user
version()
now()
current_timestamp
current_date
random()
uuid()
gen_random_uuid()
hash(room)
encode(room)
repeat('x', 1000000000)
lpad('x', 1000000000, 'y')
rpad('x', 1000000000, 'y')
printf('%1000000000d', 1)
format('{:>1000000000}', 1)
regexp_full_match(room, '(a+)+$', 'x')
regexp_split_to_array(room, '(a+)+$')
room ~ '(a+)+$'
room GLOB '*'
list_transform([1], x -> x)
list_filter([1], lambda x: x)
x -> x + 1
[x for x in range(3)]
room[1]
room[1:2]
{'a': 1}
MAP {'a': 1}
ROW(1, 2)
(1, 2)
STRUCT_PACK(a := 1)
struct_extract(room, 'x')
room.__class__
rooms.__class__
rooms.room.__class__
"__class__"
__class__
__init__.__globals__
rooms."room".x
main.rooms.room
a.b.c.d.e
json_extract(room, '$.x')
room ->> 'x'
room #> 'x'
room @> 'x'
room && 'x'
room & 1
floor | 1
floor << 1
~floor
floor!
@floor
:x
:=
@x
@@x
$x
?
?1
#1
'a' COLLATE nocase
room AT TIME ZONE 'UTC'
CAST(room AS BLOB)
CAST(room AS JSON)
CAST(room AS INT[])
CAST(room AS STRUCT(a INT))
room::regclass
TRY(1)
CAST(1 AS DECIMAL(38, 10))
DEFAULT
ROWNUM
rowid
COLUMNS('.*')
COLUMNS(*)
lag(floor) OVER w
string_agg(room, floor)
histogram(floor)
bit_and(floor)
product(floor)
corr(floor, floor)
count(DISTINCT room, floor)
sum(sum(floor))
sum(floor) WITHIN GROUP (ORDER BY floor)
quantile_cont(floor, 2)
quantile_cont(floor, floor)
EXISTS (SELECT 1 FROM nowhere)
floor IN (FROM rooms)
floor IN rooms
INTERVAL '1 month' + floor
INTERVAL 1 HOUR
INTERVAL floor HOUR
DATE '2011-02-30'
TIMESTAMP 'now'
TIMESTAMP '99999-01-01'
1e999
-1e999
99999999999999999999
0x1F
1 / * 2
1 +
'open
"open
room IS TRUE IS
room BETWEEN 1
room LIKE room
room LIKE '%' ESCAPE 'ab'
room ESCAPE 'a'
CAST(room)
CAST(room AS)
coalesce()
abs()
abs(1, 2)
lower(1)
length()
sum()
count(1, 2)
count(room.*)
count(* EXCLUDE room)
""".strip().split("\n")


def nested(opening: str, middle: str, closing: str, depth: int) -> str:
    return opening * depth + middle + closing * depth


def deep() -> list[str]:
    depths = (70, 1_000, 10_000)
    texts = []
    for depth in depths:
        inside = [
            nested("(", "floor", ")", depth),
            nested("NOT ", "TRUE", "", depth if depth > 256 else 300),
            nested("- ", "floor", "", depth if depth > 256 else 300),
            nested("abs(", "floor", ")", depth),
            nested("coalesce(", "floor", ", 1)", depth),
            nested("CASE WHEN TRUE THEN ", "1", " END", depth),
            nested("CAST(", "floor", " AS BIGINT)", depth),
            nested("NOT (", "TRUE", ")", depth),
            nested("-(", "floor", ")", depth),
            nested("1 + (", "floor", ")", depth),
            nested("[", "1", "]", depth),
            nested("{'a': ", "1", "}", depth),
            nested("x -> ", "x", "", depth),
            nested("INTERVAL ", "'1'", "", depth if depth > 256 else 300),
            nested("EXISTS (SELECT ", "1", ")", depth // 4 + 66),
            nested("DISTINCT ", "floor", "", depth if depth > 256 else 300),
        ]
        texts += [f"SELECT {each} FROM rooms" for each in inside if len(each) < 60_000]
        texts += [
            text
            for text in (
                nested("SELECT * FROM (", "rooms", ") AS t", depth),
                nested("(", "SELECT * FROM rooms", ")", depth),
                nested("EXPLAIN ", "SELECT 1 FROM rooms", "", depth),
                "SELECT 1 FROM rooms" + " UNION SELECT 1 FROM rooms" * depth,
                "SELECT 1 FROM rooms" + " INTERSECT SELECT 1 FROM rooms" * depth,
                "SELECT 1 FROM rooms" + ", rooms" * depth,
                "SELECT 1 FROM rooms" + " JOIN rooms ON TRUE" * depth,
            )
            if len(text) < 65_000
        ]
    return texts


HUGE = [
    "SELECT " + "9" * 60_000 + " FROM rooms",
    "SELECT 0." + "9" * 70_000 + " FROM rooms",
    "SELECT '" + "x" * 70_000 + "' FROM rooms",
    "SELECT room FROM " + "x" * 60_000,
    "SELECT " + "x" * 60_000 + " FROM rooms",
    "SELECT room FROM rooms WHERE room LIKE '" + "%_" * 5_000 + "'",
    "SELECT room FROM rooms WINDOW " + "9" * 60_000,
    "SELECT room FROM rooms LIMIT " + "9" * 60_000,
    "SELECT ts FROM store1 WINDOW 1e300",
    "SELECT ts FROM store1 WINDOW -1",
    "SELECT ts FROM store1 WINDOW 'forever'",
    "CREATE SUMMARY s ON store1 (item_id) WITH GRANULARITY 3600 AND COLLAPSE (4096, 32)",
    "CREATE SUMMARY s ON store1 (item_id) WITH GRANULARITY 3600 AND COLLAPSE (4, 3) USING columns = 1048576, rows = 15",
    "\0",
    "SELECT room\0 FROM rooms",
    "SELECT '\0' FROM rooms",
    "SELECT '\ud800' FROM rooms",
    'SELECT "\udfff" FROM rooms',
    "SELECT room FROM rooms\ud83d",
    "\ufeffSELECT room FROM rooms WHERE",
    "SELECT room\u2028FROM\u2028rooms WHERE",
    "SELECT r\u043eom FROM rooms",
    "SELECT room FROM rooms WHERE room \u2260 'x'",
    "SELECT room FROM rooms /* open",
    "SELECT room FROM rooms WHERE room = 'open",
    "-- SELECT room FROM rooms",
    "",
    "   \n\t",
    ";",
    ";;;",
    "()",
    "(((",
    ")))",
]

PAYLOADS = [
    *STATEMENTS,
    *(f"SELECT * FROM {source}" for source in SOURCES),
    *(f"SELECT {expression} FROM rooms" for expression in EXPRESSIONS),
    *(f"SELECT room FROM rooms WHERE {expression} = 1" for expression in EXPRESSIONS),
    *(f"SELECT count(*) FROM rooms GROUP BY {expression}" for expression in EXPRESSIONS[:40]),
    *(f"SELECT room FROM rooms ORDER BY {expression}" for expression in EXPRESSIONS[:40]),
    *deep(),
    *HUGE,
]


_HANGS = 20.0
"""CPU seconds that only a hang takes: a loaded machine needs half a second."""


def test_there_are_more_than_enough_payloads() -> None:
    assert len(set(PAYLOADS)) >= 500


@pytest.mark.parametrize("text", PAYLOADS, ids=lambda text: f"{text[:40]!r}-{len(text)}")
def test_a_hostile_statement_is_refused(text: str) -> None:
    begin = time.thread_time()
    with pytest.raises(NileError) as error:
        read_statement(text, CATALOG)
    assert time.thread_time() - begin < _HANGS
    assert len(str(error.value)) < 1_000
    assert "Traceback" not in str(error.value)


@pytest.mark.parametrize("text", [None, 1, b"SELECT 1", ["SELECT 1"], object()], ids=lambda value: type(value).__name__)
def test_what_is_no_text_is_refused(text: Any) -> None:
    with pytest.raises(SqlError, match="needed a statement as text"):
        read_statement(text, CATALOG)


@pytest.mark.parametrize("word", ["AND", "OR"])
def test_ten_thousand_conditions_are_refused_cleanly(word: str) -> None:
    for count in (3_500, 10_000):
        text = "SELECT room FROM rooms WHERE " + f" {word} ".join(["floor=1"] * count)
        with pytest.raises(SqlError, match="needed at most"):
            read_statement(text, CATALOG)


def test_a_thousand_conditions_are_read_in_little_time_and_memory() -> None:
    text = "SELECT room FROM rooms WHERE " + " AND ".join(["floor=1 OR floor=2"] * 1_000)
    taken = []
    for _ in range(3):  # the least: collecting other tests' garbage is no part of reading
        begin = time.thread_time()
        read_statement(text, CATALOG)
        taken.append(time.thread_time() - begin)
    assert min(taken) < _HANGS
    tracemalloc.start()
    read_statement(text, CATALOG)
    assert tracemalloc.get_traced_memory()[1] < 256 << 20
    tracemalloc.stop()


def test_a_script_is_split_where_semicolons_are_no_text() -> None:
    script = "SELECT ';' FROM a; -- one; two\n SELECT \"x;y\" /* ; */ FROM b;\n;  ; SHOW STREAMS"
    assert split_statements(script) == (
        "SELECT ';' FROM a",
        '-- one; two\n SELECT "x;y" /* ; */ FROM b',
        "SHOW STREAMS",
    )


def test_memory_that_ends_while_a_statement_is_parsed_is_told_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    def ends(*_: object, **__: object) -> None:
        raise MemoryError

    db = nile.connect()
    db.stream("s", [("t", "float64")], time="t")
    monkeypatch.setattr(heavy.sqlglot, "parse_one", ends)
    with pytest.raises(MemoryError):
        db.sql("SELECT t FROM s")


def test_parsing_takes_no_lock_of_logging() -> None:
    """An interrupt could leave it taken, and then no other thread logs any more."""
    db = nile.connect()
    db.stream("s", [("t", "float64")], time="t")
    db.sql("SELECT t FROM s")
    with mock.patch("logging._acquireLock", side_effect=AssertionError, create=True):
        assert db.sql("SELECT t + 1 AS u FROM s").fetchall() == []
