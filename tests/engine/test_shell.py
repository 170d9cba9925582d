"""`nile sql` as a newcomer meets it: on a terminal, from a pipe, with statements on the command line."""

from __future__ import annotations

import io
import json
import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from rich.cells import cell_len

import nile
from nile.base.show import cell_text, first_rows, render
from nile.experiments.cli import main
from nile.shell import Shell
from nile.shell.terminal import completions, history_file

SALES = pa.table({"ts": [0.0, 60.0, 120.0], "item": ["tea", "cup", "tea"], "price": [2.5, None, 3.0]})


@pytest.fixture
def sales(tmp_path: Path) -> Path:
    path = tmp_path / "sales.parquet"
    pq.write_table(SALES, path)
    return path


def shell_over(db: nile.Database, **options: object) -> tuple[Shell, io.StringIO, io.StringIO]:
    out, err = io.StringIO(), io.StringIO()
    return Shell(db, out, err, **options), out, err  # type: ignore[arg-type]


@pytest.fixture
def db() -> nile.Database:
    return nile.connect().register("sales", SALES, time="ts")


def call(*arguments: str, text: str | None = None) -> Result:
    return CliRunner().invoke(main, ["sql", *arguments], input=text)


def test_statements_of_the_command_line_run_in_order(sales: Path) -> None:
    made = f"CREATE STREAM sales FROM '{sales}' TIMESTAMP BY ts"
    result = call("--format", "csv", made, "SELECT item, price FROM sales WHERE ts >= 60")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == ["item,price", "cup,", "tea,3.0"]


def test_a_script_from_a_pipe_stops_at_the_first_error_with_status_2(sales: Path) -> None:
    text = f"""
    -- a comment; with a semicolon
    CREATE STREAM sales FROM '{sales}'
        TIMESTAMP BY ts;
    SELECT itme FROM sales;
    SELECT item FROM sales;
    """
    result = call("--format", "json", text=text)
    assert result.exit_code == 2
    assert "did you mean" in result.output
    assert "tea" not in result.output
    assert "Traceback" not in result.output


def test_rows_come_as_json_lines_and_markdown(db: nile.Database) -> None:
    shell, out, _ = shell_over(db, form="json")
    assert shell.line("SELECT item, price FROM sales;")
    assert [json.loads(line) for line in out.getvalue().splitlines()] == [
        {"item": "tea", "price": 2.5},
        {"item": "cup", "price": None},
        {"item": "tea", "price": 3.0},
    ]
    shell, out, _ = shell_over(db)
    assert shell.line(".mode markdown")
    assert shell.line("SELECT item AS \"a|b\" FROM sales WHERE item = 'cup';")
    assert out.getvalue().splitlines() == ["| a\\|b |", "| --- |", "| cup |"]


def test_a_statement_may_take_several_lines(db: nile.Database) -> None:
    shell, out, _ = shell_over(db, form="csv")
    assert shell.line("SELECT item")
    assert shell.waiting
    assert shell.line("FROM sales -- not yet;")
    assert shell.waiting
    assert shell.line("WHERE price > 2.75;")
    assert not shell.waiting
    assert out.getvalue() == "item\ntea\n"


@pytest.mark.parametrize(("many", "width", "shown"), [(25, 80, 10), (25, 20, 2), (3, 20, 2), (2, 20, 2), (11, 80, 11)])
def test_of_more_columns_than_can_be_read_the_first_and_the_last_are_shown(many: int, width: int, shown: int) -> None:
    names = [f"c{at}" for at in range(many)]
    text = render(names, ["bool"] * many, [(True,) * many], "table", width=width)
    lines = text.splitlines()
    assert all(cell_len(line) <= width for line in lines if not line.startswith("("))
    heads = lines[1].replace("\u2502", " ").split()
    if shown == many:
        assert heads == names
        assert "shown" not in text
    else:
        front = (shown + 1) // 2
        assert heads == [*names[:front], "\u2026", *names[many - (shown - front) :]]
        assert lines[-1] == f"({many} columns, {shown} shown)"


def test_tables_fit_the_width_and_say_how_many_rows_there_are(db: nile.Database) -> None:
    db.register("wide", {"at": [0.0, 1.0, 2.0], **{f"column_{k}": ["x" * 30] * 3 for k in range(5)}}, time="at")
    shell, out, _ = shell_over(db, width=80)
    assert shell.line("SELECT * FROM wide;")
    assert max(map(len, out.getvalue().splitlines())) <= 80
    assert "(3 rows)" in out.getvalue()


def test_a_long_cell_takes_no_room_from_short_columns(db: nile.Database) -> None:
    db.register("notes", {"ts": [0.0], "note": ["\u6f22\u5b57" * 90], "n": [123_456], "other": ["x" * 300]}, time="ts")
    shell, out, _ = shell_over(db)
    assert shell.line("SELECT * FROM notes;")
    lines = out.getvalue().splitlines()
    assert all(cell_len(line) <= 80 for line in lines)
    assert "\u2502    0.0 \u2502" in lines[-3]
    assert "\u2502 123456 \u2502" in lines[-3]
    assert "\u6f22\u5b57\u6f22" in lines[-3]
    assert "xxxxx" in lines[-3]


def test_what_programs_read_holds_rows_alone(db: nile.Database) -> None:
    shell, out, err = shell_over(db, form="csv")
    assert shell.line("CREATE STREAM more FROM sales TIMESTAMP BY ts; SELECT item FROM more WHERE ts = 60;")
    assert out.getvalue() == "item\ncup\n"
    assert err.getvalue() == "stream 'more' created, in the order of ts\n"


def test_a_file_that_is_no_text_is_one_message(tmp_path: Path) -> None:
    file = tmp_path / "statements.sql"
    file.write_bytes(b"SELECT \xff")
    result = call("--file", str(file))
    assert result.exit_code == 2
    assert "needed statements in UTF-8" in result.output


def test_only_the_first_rows_of_a_long_table_are_shown(db: nile.Database) -> None:
    db.register("long", {"at": [float(k) for k in range(100)]}, time="at")
    shell, out, _ = shell_over(db, limit=5)
    assert shell.line('SELECT "at" FROM long;')
    assert "4.0" in out.getvalue()
    assert "5.0" not in out.getvalue()
    assert "first 5 of 100 rows; .limit shows more" in out.getvalue()
    assert shell.line(".limit all")
    assert shell.line('SELECT "at" FROM long;')
    assert "(100 rows)" in out.getvalue()


def test_a_table_of_an_approximate_answer_says_what_it_is_worth(db: nile.Database) -> None:
    db.register("other", SALES, time="ts")
    shell, out, _ = shell_over(db)
    text = "SELECT a.item FROM sales a, other b WHERE a.item = b.item WITH PREFERENCE desc a.item WINDOW 60 BUDGET 0.5;"
    assert shell.line(text)
    assert "budget" in out.getvalue().splitlines()[-1] or "spent" in out.getvalue().splitlines()[-1]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (".tabels", "did you mean .tables?"),
        (".mode xml", "needed one of table, csv, json, markdown"),
        (".limit -3", "needed a whole number above 0"),
        (".emit loudly", "needed one of append, changes, snapshot, default"),
        (".timer maybe", "needed on or off"),
        (".schema", "write .schema NAME"),
        (".read nowhere.sql", "is not there"),
        ('.read "unclosed', "close the quote"),
        (".schema nothing", "nothing"),
        ("SELECT 1 FROM nowhere;", "nowhere"),
    ],
)
def test_what_cannot_be_done_is_one_message_and_the_shell_goes_on(db: nile.Database, line: str, told: str) -> None:
    shell, out, err = shell_over(db, form="csv")
    assert not shell.line(line)
    assert told in err.getvalue()
    assert len(err.getvalue().splitlines()) == 1
    assert shell.line("SELECT item FROM sales WHERE item = 'cup';")
    assert out.getvalue() == "item\ncup\n"


def test_commands_show_tables_columns_help_and_times(db: nile.Database) -> None:
    shell, out, _ = shell_over(db)
    for line in (".tables", ".schema sales", ".aggregates", ".help", ".timer on", "SELECT item FROM sales;", ".quit"):
        assert shell.line(line)
    told = out.getvalue()
    assert all(word in told for word in ("sales", "price", "quantile_cont(x, share)", ".read FILE", "Time: "))
    assert shell.done


def test_a_file_of_statements_is_read(db: nile.Database, tmp_path: Path) -> None:
    script = tmp_path / "script.sql"
    script.write_text("SELECT item FROM sales\nWHERE price > 2.75;\nSELECT count(*) AS n FROM sales;", encoding="utf-8")
    shell, out, _ = shell_over(db, form="csv")
    assert shell.line(f".read {script}")
    assert out.getvalue() == "item\ntea\nn\n3\n"


def test_cells_show_what_is_not_printable_escaped() -> None:
    assert cell_text("a\nb\x00\u202e") == "a\\nb\\x00\\u202e"
    assert cell_text(None) == "NULL"
    assert cell_text(0.1) == "0.1"
    assert cell_text(3.0) == "3.0"
    assert cell_text(float("nan")) == "nan"
    assert cell_text(b"\x01\xff") == "x'01ff'"


def test_no_batch_is_read_beyond_the_rows_that_are_shown() -> None:
    def batches() -> object:
        yield pa.record_batch({"a": [1, 2]})
        yield pa.record_batch({"a": [3, 4]})
        raise AssertionError("read too far")

    rows, more = first_rows(batches(), 3)  # type: ignore[arg-type]
    assert rows == [(1,), (2,), (3,)]
    assert more


def test_a_rendered_table_does_not_read_markup_in_values() -> None:
    text = render(["[bold]x"], ["string"], [("[red]tea[/red]",)], "table", width=60)
    assert "[red]tea[/red]" in text
    assert "[bold]x" in text


def test_tab_completes_keywords_streams_and_columns(db: nile.Database) -> None:
    assert completions(db, "pri") == ["price"]
    assert completions(db, "sal") == ["sales"]
    assert "PREFERENCE" in completions(db, "pref")
    assert completions(db, ".ti") == [".timer"]


def test_a_backslash_is_answered_with_the_command_that_is_meant(db: nile.Database) -> None:
    shell, _, err = shell_over(db)
    for line, hint in (("\\d", "write .tables"), ("\\d sales", "write .schema NAME"), ("\\x", ".help lists them")):
        assert not shell.line(line)
        assert err.getvalue().endswith(f"got a backslash; {hint}\n")
    assert not shell.waiting


def test_a_file_among_the_statements_is_told_how_to_be_run(tmp_path: Path) -> None:
    (tmp_path / "ask.sql").write_text("SHOW TABLES")
    told = call(str(tmp_path / "ask.sql"))
    assert told.exit_code == 2
    assert "write nile sql --file" in told.output


def test_a_store_among_the_statements_is_the_database_that_they_ask(tmp_path: Path) -> None:
    with nile.connect(tmp_path / "store") as made:
        made.stream("clicks", [("at", "float64"), ("page", "string")], time="at")
        made.push("clicks", {"at": 1.0, "page": "home"})
    told = call(str(tmp_path / "store"), "SELECT page FROM clicks", "--format", "csv")
    assert (told.exit_code, told.output) == (0, "page\nhome\n")


def test_every_command_is_said_in_a_line_that_fits() -> None:
    told = CliRunner().invoke(main, ["--help"]).output
    assert "..." not in told.partition("Commands:")[2]
    assert max(map(len, told.splitlines())) <= 80


def test_history_is_kept_where_the_environment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NILE_HISTORY", str(tmp_path / "h"))
    assert history_file() == tmp_path / "h"
    monkeypatch.delenv("NILE_HISTORY")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert history_file() == tmp_path / "nile" / "history"


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_on_a_terminal_there_is_a_prompt_a_history_and_ctrl_d_leaves(tmp_path: Path) -> None:
    history = tmp_path / "deep" / "history"
    ours, theirs = pty.openpty()
    environment = {**os.environ, "NILE_HISTORY": str(history), "TERM": "dumb", "COLUMNS": "80"}
    process = subprocess.Popen(
        [sys.executable, "-c", "from nile.experiments.cli import main; main()", "sql"],
        stdin=theirs, stdout=theirs, stderr=theirs, env=environment, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    os.close(theirs)

    def until(text: str) -> str:
        seen, end = "", time.monotonic() + 60
        while text not in seen and time.monotonic() < end:
            if select.select([ours], [], [], 0.5)[0]:
                try:
                    seen += os.read(ours, 4096).decode()
                except OSError:
                    break
        assert text in seen
        return seen

    try:
        assert ".help" in until("nile> ")
        os.write(ours, b"SHOW\n")
        until("  ... ")
        os.write(ours, b"TABLES;\n")
        until("nile> ")
        os.write(ours, b"\x04")
        assert process.wait(60) == 0
    finally:
        process.kill()
        os.close(ours)
    assert "SHOW TABLES;" in history.read_text(encoding="utf-8").splitlines()


def test_emit_says_what_exact_statements_tell_from_now_on(sales: Path) -> None:
    shell, out, _ = shell_over(nile.connect().register("s", str(sales), time="ts"), form="csv")
    for how in ("snapshot", "changes", "default"):
        assert shell.line(f".emit {how}")
        assert shell.line("SELECT count(*) AS n FROM s WINDOW 70;")
    assert out.getvalue().split("\n")[:2] == ["n", "2"]
    assert out.getvalue().count("_ts,_sign,n") == 2


@pytest.mark.parametrize("command", [["demo"], ["bench", "run", "surface"], ["experiment", "all", "--quick"]])
def test_a_folder_that_cannot_be_written_is_told_before_the_work(command: list[str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    told = CliRunner().invoke(main, [*command, "--out", str(tmp_path / "file" / "out")])
    assert told.exit_code != 0
    assert "--out: needed a folder that can be written" in told.output + str(told.exception)


def test_rows_that_were_left_out_of_an_answer_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "u.csv").write_bytes(b"a,b\n1,2\n4\n6,x\xff\n7,8\n9,9\n")
    (tmp_path / "late.csv").write_text("t,k\n1,x\n9,x\n2,x\n,x\n")
    shell, out, err = shell_over(nile.connect())
    assert shell.line(f"SELECT * FROM '{tmp_path}/u.csv';")
    told = "u: 2 of 5 rows left out (1 wrong number of fields, 1 cell of 'b' is no UTF-8 text)"
    assert out.getvalue().endswith(f"(3 rows; {told})\n")
    with nile.connect() as db:
        db.sql(f"CREATE STREAM s FROM '{tmp_path}/late.csv' TIMESTAMP BY t LATENESS '1 s'")
        answer = db.sql("SELECT count(*) AS n FROM s")
        answer.show()
        why = "s: 2 of 4 rows left out (1 null time, 1 later than the lateness allows)"
        assert capsys.readouterr().out.endswith(why + "\n")
        assert answer.warnings == (why,)
        assert db.sql("SELECT 1 AS x").warnings == ()
    assert not err.getvalue()
