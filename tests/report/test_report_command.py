"""`nile report`: statements in, a table, a page and a JSON out; what cannot be measured is named."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from nile.experiments.cli import main

QUERY = """SELECT a.item, a.ts, b.ts FROM s a, s b WHERE a.item = b.item AND a.ts < b.ts
           WITH PREFERENCE desc a.item WINDOW '30 s'"""
PLAIN = "SELECT a.item, b.ts FROM s a, t b WHERE a.item = b.item WITH PREFERENCE {} a.item WINDOW '30 s' BUDGET 20 %"


@pytest.fixture(scope="module")
def setup(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of statements that make two streams; keys are hostile text."""
    folder = tmp_path_factory.mktemp("data")
    keys = ["<script>alert(1)</script>", "\u202eturned", "[bold]", "x" * 5_000]
    for name, step in (("s", 3), ("t", 5)):
        table = pa.table(
            {"ts": [float(i) for i in range(300)], "item": [keys[i * i * step % 7 % 4] for i in range(300)]}
        )
        pq.write_table(table, folder / f"{name}.parquet")
    script = folder / "setup.sql"
    script.write_text(
        "".join(f"CREATE STREAM {n} FROM '{folder / n}.parquet' TIMESTAMP BY ts;\n" for n in ("s", "t")),
        encoding="utf-8",
    )
    return script


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["report", *map(str, arguments)])


@pytest.mark.parametrize("preference", ["desc", "weighted", "asc"])
def test_a_join_gives_a_table_a_page_and_its_figures(setup: Path, tmp_path: Path, preference: str) -> None:
    out = tmp_path / "mine.html"
    budgets = ("--budget", "10%", "--budget", "0.5")
    told = run("--setup", setup, PLAIN.format(preference), *budgets, "--seeds", 2, "--out", out)
    assert told.exit_code == 0, told.output
    assert "nile/directory" in told.stdout
    assert "hash-drop" in told.stdout
    assert f"Report: {out}" in told.stdout.splitlines()
    figures = json.loads((tmp_path / "mine.json").read_text(encoding="utf-8"))
    assert {run["budget"] for run in figures["runs"]} == {0.1, 0.2, 0.5}
    assert {run["seed"] for run in figures["runs"]} == {0, 1}
    assert figures["looked_at"]["budget"] == 0.2
    for line in figures["advice"]:
        assert "".join(line.split()) in "".join(told.stdout.split())
    page = out.read_text(encoding="utf-8")
    assert "<script>alert" not in page
    assert "\u202e" not in page + told.stdout


def test_what_it_prints_fits_80_columns_and_keeps_hostile_keys_as_they_are(setup: Path, tmp_path: Path) -> None:
    told = run("--setup", setup, PLAIN.format("asc"), "--budget", "0.2", "--seeds", "1", "--out", tmp_path)
    assert told.exit_code == 0, told.output
    table = told.stdout[: told.stdout.index("Report:")]
    assert max(map(len, table.splitlines())) <= 80
    assert "\x1b" not in told.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "report.json"]


def test_aggregates_and_selections_are_told_in_tables_of_their_own(setup: Path, tmp_path: Path) -> None:
    asked = ("--budget", "0.3", "--seeds", "2", "--out", tmp_path)
    numbers = run("--file", setup, "SELECT item, count(*) AS n FROM s GROUP BY item BUDGET 20 %", *asked)
    assert numbers.exit_code == 0, numbers.output
    assert "errors of the numbers" in numbers.stdout
    assert "in interval" in numbers.stdout
    rows = run("--file", setup, "SELECT item FROM s WHERE item > 'a' WITH PREFERENCE desc item", *asked)
    assert rows.exit_code == 0, rows.output
    assert "nile/share" in rows.stdout


def test_progress_is_json_lines_on_standard_error(setup: Path, tmp_path: Path) -> None:
    told = run("--setup", setup, PLAIN.format("desc"), "--budget", "0.2", "--seeds", "1", "--out", tmp_path)
    lines = [json.loads(line) for line in told.stderr.splitlines()]
    notes = [line["note"] for line in lines if line["event"] == "note"]
    seeded = [f"{name} at 0.2, seed 0" for name in ("nile", "shed-uniform", "hash-keys")]
    runs = (seeded[0], "hash-drop at 0.2", seeded[1], "hash-backlog at 0.2", seeded[2])
    assert notes == [f"run {number} of 5: {run}" for number, run in enumerate(runs, 1)]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("SELECT item FROM s",), "report: needed a query WITH PREFERENCE"),
        (("SHOW TABLES",), "report: needed a query WITH PREFERENCE"),
        ((PLAIN.format("desc"), "--against", "hash-dorp"), "did you mean 'hash-drop'?"),
        ((PLAIN.format("desc"), "--budget", "much"), "--budget: needed a share of the exact work"),
        ((PLAIN.format("desc"), "--budget", "-1"), "report budgets: needed fractions"),
        ((PLAIN.format("desc"), "--budget", "nan%"), "report budgets: needed fractions"),
        ((PLAIN.format("desc"), "--seeds", "0"), "report seeds: needed a whole number"),
        (("SELECT item FROM s", PLAIN.format("desc")), "got a query as number 3"),
        (("SELECT a.itme FROM s a WITH PREFERENCE desc a.item",), "itme"),
    ],
)
def test_what_cannot_be_measured_is_named_on_one_line(
    setup: Path, tmp_path: Path, arguments: tuple[str, ...], told: str
) -> None:
    out = tmp_path / "out"
    found = run("--setup", setup, *arguments, "--out", out)
    assert found.exit_code == 2
    assert told in found.stderr.splitlines()[-1]
    assert found.stderr.splitlines()[-1].startswith("nile: ")
    assert not out.exists()


def test_files_that_are_not_there_are_named(tmp_path: Path) -> None:
    found = run("CREATE STREAM s FROM 'nowhere.parquet' TIMESTAMP BY ts", PLAIN.format("desc"))
    assert found.exit_code == 2
    assert "nowhere.parquet" in found.stderr
    assert "does not exist" in run("--setup", tmp_path / "none.sql", PLAIN).stderr
    assert "needed a query" in run().stderr


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.sql").write_bytes(b"\xff\xfe\x00SELECT")
    found = run("--setup", tmp_path / "bad.sql")
    assert found.exit_code == 2
    assert "needed statements in UTF-8" in found.stderr


def test_an_opponent_may_be_named(setup: Path, tmp_path: Path) -> None:
    asked = ("--against", "exact", "--against", "scan", "--budget", "0.2", "--seeds", "1", "--out", tmp_path)
    found = run("--setup", setup, PLAIN.format("desc"), *asked)
    assert found.exit_code == 0, found.output
    assert "scan" in found.stdout
    assert "hash-drop" not in found.stdout


def test_a_condition_on_the_pair_is_measured_too(setup: Path, tmp_path: Path) -> None:
    found = run("--setup", setup, QUERY, "--budget", "0.2", "--seeds", "1", "--out", tmp_path)
    assert found.exit_code == 0, found.output
    assert json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))["kind"] == "combinations"
