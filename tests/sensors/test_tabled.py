"""CREATE STREAM ... FROM SENSORS: what a table of sensors gives waits in the store, over restarts and kills."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from test_flows import readers, until
from test_sensors_killed import Feeder, spilled_over_kills

import nile
from nile import END, NEW_VALUE, NO_VALUE
from nile.sql.reading_statements import read_statement
from nile.sql.statement_text import statement_text

TABLE = "CREATE SENSORS d (id INT, kind TEXT, v STREAM(n BIGINT) USING 'Numbered')"


class Numbered(nile.Sensor):
    """Numbers from 1000 x its address on.  It tells its place, and begins again behind it."""

    inits = 0

    def init(self, address: Any, row: Any) -> None:  # noqa: ARG002
        Numbered.inits += 1
        self.base = 1000 * int(address)
        self.place = self.place or 0

    def read(self) -> Any:
        if self.place >= Numbered.most:
            return END if Numbered.ends else NO_VALUE
        self.place += 1
        return NEW_VALUE, self.base + self.place

    most, ends = 100, False


def declared(db: nile.Database, sources: int = 3) -> None:
    db.sql(TABLE)
    db.sensors("d").add([{"id": k, "kind": "ab"[k % 2], "v": str(k)} for k in range(sources)])


def numbers(db: nile.Database, count: int) -> list[int]:
    until(lambda: db.accounting("s").applied >= count)
    time.sleep(0.1)
    return sorted(row[0] for row in db.sql("SELECT n FROM s").fetchall())


def told(db: nile.Database) -> tuple[Any, ...]:
    found: tuple[Any, ...] = db.sql("SELECT reads, state, error FROM nile_sources WHERE name = 's'").fetchall()[0]
    return found


@pytest.fixture(autouse=True)
def anew() -> None:
    Numbered.most, Numbered.ends, Numbered.inits = 100, False, 0


def test_a_statement_written_out_reads_the_same() -> None:
    names = nile.connect()._names
    for text in ("CREATE STREAM s FROM SENSORS d", "CREATE OR REPLACE STREAM s FROM SENSORS d KEEP '1 h'"):
        statement = read_statement(text, names)
        assert read_statement(statement_text(statement), names) == statement
    assert read_statement("CREATE STREAM s FROM sensors TIMESTAMP BY ts", names).using is None  # type: ignore[union-attr]


def test_what_cannot_be_is_refused() -> None:
    with nile.connect() as db:
        with pytest.raises(nile.UnknownStream, match="needed a table of sensors; got 'd'"):
            db.sql("CREATE STREAM s FROM SENSORS d")
        declared(db)
        with pytest.raises(nile.SqlError, match="KEEP d or the end"):
            db.sql("CREATE STREAM s FROM SENSORS d LATENESS 5")
        db.sql("CREATE STREAM s FROM SENSORS d")
        with pytest.raises(nile.ConfigError, match="got one that reads sensors"):
            db.push("s", {"id": [1], "kind": ["a"], "v": ["1"], "n": [1], "ts": [0]})
        assert db.streams == ("d", "s")


def test_places_over_restarts_once_each_and_without_the_table(tmp_path: Path) -> None:
    expected = [1000 * k + j for k in range(3) for j in range(1, 101)]
    with nile.connect(str(tmp_path)) as db:
        declared(db)
        db.sql("CREATE STREAM s FROM SENSORS d")
        db.subscribe("SELECT id, n FROM s WHERE kind = 'b'", name="q")
        assert numbers(db, 300) == expected
        assert told(db) == ("sensors d", "open", None)
        assert db.offset("s") == {"0": 100, "1": 100, "2": 100}
    assert readers() == []
    Numbered.most, inits = 150, Numbered.inits
    with nile.connect(str(tmp_path)) as db:  # nobody has declared the table
        time.sleep(0.2)
        assert numbers(db, 300) == expected
        assert told(db)[1] is None
        assert db.sql("SELECT count(*) AS n FROM s WHERE kind = 'a'").fetchall() == [(200,)]
    assert Numbered.inits == inits
    with nile.connect(str(tmp_path)) as db:
        declared(db)
        assert numbers(db, 450) == [1000 * k + j for k in range(3) for j in range(1, 151)]
        got = [n for batch in db.subscription("q").poll() for n in batch.column("n").to_pylist()]
        assert sorted(got)[:100] == list(range(1001, 1101))
        assert len(got) == len(set(got)), "outputs that nobody had read, and those that came"
        db.sql("DROP SENSORS d")
        until(lambda: not readers())
        assert db.streams == ("s",)


def test_the_end_of_all_sources_and_another_table(tmp_path: Path) -> None:
    Numbered.ends = True
    with nile.connect(str(tmp_path)) as db:
        declared(db)
        heard: list[int] = []
        db.sql("CREATE STREAM s FROM SENSORS d")
        db.subscribe("SELECT n FROM s", lambda batch: heard.extend(batch.column("n").to_pylist()))
        until(lambda: told(db)[1] == "ended")
        assert numbers(db, 300)[-1] == 2100
        with pytest.warns(RuntimeWarning, match="declare the table again"):
            replaced(db)
        assert told(db)[1] == "failed"
        assert "where the stream has" in told(db)[2]


def replaced(db: nile.Database) -> None:
    db.sql("CREATE OR REPLACE SENSORS d (id INT, v STREAM(m BIGINT) USING 'Numbered')")
    until(lambda: not readers())


def test_a_full_query_holds_the_sources_back_and_loses_nothing() -> None:
    Numbered.most, Numbered.ends = 3000, True
    with nile.connect() as db:
        declared(db)
        with db._live.lock:  # the query sees the first row, too
            db.sql("CREATE STREAM s FROM SENSORS d")
            slow = db.subscribe("SELECT n FROM s", unread=500, when_full="refuse")
        got: list[int] = []

        def read() -> bool:
            got.extend(n for batch in slow.poll() for n in batch.column("n").to_pylist())
            return len(got) >= 9000

        until(read)
        assert sorted(got) == sorted(1000 * k + j for k in range(3) for j in range(1, 3001))


@pytest.mark.parametrize(
    ("kills", "lines"),
    [pytest.param(1, 20_000, marks=pytest.mark.slow), pytest.param(20, 40_000, marks=pytest.mark.long)],
)
def test_what_sensors_gave_and_has_spilled_is_there_after_a_kill(tmp_path: Path, kills: int, lines: int) -> None:
    """Four files, each the source of a row: what nobody has read lies in the store's files, once each."""
    logs, store = tmp_path / "logs", tmp_path / "store"
    logs.mkdir()

    def written(sent: int) -> None:
        for part in range(4):
            with (logs / str(part)).open("a") as file:
                file.writelines(
                    json.dumps({"n": k, "line": f"{k:x}" * 40}) + "\n" for k in range(sent + part, sent + lines, 4)
                )

    sent = spilled_over_kills(Feeder(store, "sensors", str(logs), outputs=""), store, kills, lines, written)
    with nile.connect(str(store)) as db:
        assert db.accounting("readings").applied == sent
        query, told_ = db.subscription("thousands"), []

        def read() -> bool:  # the last instant is over once the table has been silent
            told_.extend(query.poll_numbered())
            return query.outputs == sent

        until(read)
        told_.extend(query.poll_numbered())
        assert [ordinal for ordinal, _ in told_] == sorted(ordinal for ordinal, _ in told_)
        rows = [row for _, batch in told_ for row in batch.to_pylist()]
        assert sorted(row["n"] for row in rows) == list(range(sent)), "each once, and none else"
        assert all(row["line"] == f"{row['n']:x}" * 40 for row in rows)
        for part in range(4):
            own = [row["n"] for row in rows if row["n"] % 4 == part]
            assert own == sorted(own), "each source in its order"
    assert threading.active_count() < 20
