"""The `nile` command as a newcomer meets it: help, examples, bad input, no terminal."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from nile.experiments.cli import main
from nile.experiments.run.config import load_config

ROWS = {
    "ts": pa.array([0, 60, 120, 180, 240, 300], pa.timestamp("s")),
    "item": ["a", "b", "a", "b", "a", None],
    "shop": [0, 1, 1, 0, 1, 0],
}
SIDES = ["--left", "shop = 0", "--right", "shop = 1", "--key", "item", "--time", "ts", "--window", "2 min"]


def call(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def told(result: Result) -> str:
    """The one message of a refused command."""
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    messages = [line for line in result.output.splitlines() if line and not line.startswith("{")]
    assert messages, result.output
    return "\n".join(messages)


@pytest.fixture
def parquet(tmp_path: Path) -> Path:
    path = tmp_path / "sales.parquet"
    pq.write_table(pa.table(ROWS), path)
    return path


def test_help_fits_eighty_columns_and_names_every_command() -> None:
    for arguments in (["--help"], ["demo", "--help"], ["run", "--help"], ["doctor", "--help"], ["bench", "--help"]):
        result = call(*arguments)
        assert result.exit_code == 0
        assert max(len(line) for line in result.output.splitlines()) <= 80
    listed = call("--help").output
    assert all(name in listed for name in ("demo", "run", "doctor", "bench"))


def test_the_example_config_is_one_that_loads(tmp_path: Path) -> None:
    path = tmp_path / "example.toml"
    path.write_text(call("run", "--example").output, encoding="utf-8")
    assert load_config(path).methods == ("nile", "hash-drop")


def test_run_without_a_config_says_what_it_needs() -> None:
    assert "nile run CONFIG.toml --out DIR" in told(call("run"))


def test_bench_without_a_name_lists_the_benchmarks() -> None:
    result = call("bench")
    assert result.exit_code == 0
    assert "sketch" in result.output


def test_an_unknown_benchmark_is_refused_by_name() -> None:
    assert "sketsch" in told(call("bench", "sketsch"))


def test_own_data_needs_two_streams_named(parquet: Path) -> None:
    assert "--left and --right" in told(call("demo", "--data", str(parquet)))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    assert "nothing.parquet" in told(call("demo", "--data", str(tmp_path / "nothing.parquet"), *SIDES))


def test_a_config_mistake_names_file_line_and_key(tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(call("run", "--example").output.replace("fade = 1.0", "fade = 7"), encoding="utf-8")
    message = told(call("run", str(path), "--out", str(tmp_path / "out")))
    assert "bad.toml:" in message
    assert "fade" in message
    assert not (tmp_path / "out").exists()


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
class TestBadStreams:
    """What only reading can find out, by way of Spark."""

    def refused(self, path: Path, *changes: str) -> str:
        out = path.parent / "out"
        message = told(call("demo", "--data", str(path), *SIDES, *changes, "--out", str(out)))
        assert not out.exists()
        return message

    def test_a_directory(self, tmp_path: Path) -> None:
        folder = tmp_path / "folder.parquet"
        folder.mkdir()
        assert "folder.parquet" in self.refused(folder)

    def test_an_empty_file(self, tmp_path: Path) -> None:
        for name in ("empty.csv", "empty.parquet"):
            (tmp_path / name).touch()
            assert name in self.refused(tmp_path / name)

    def test_a_truncated_parquet_file(self, parquet: Path) -> None:
        cut = parquet.with_name("cut.parquet")
        cut.write_bytes(parquet.read_bytes()[:-40])
        assert "cut.parquet" in self.refused(cut)

    def test_an_unknown_column(self, parquet: Path) -> None:
        assert "did you mean" in self.refused(parquet, "--key", "itme")

    def test_a_condition_that_does_not_parse(self, parquet: Path) -> None:
        assert "where" in self.refused(parquet, "--left", "shop = = 0")

    def test_a_window_that_is_no_duration(self, parquet: Path) -> None:
        assert "window" in self.refused(parquet, "--window", "soon")

    def test_keys_that_never_compare(self, parquet: Path, tmp_path: Path) -> None:
        other = tmp_path / "numbers.parquet"
        pq.write_table(pa.table({**ROWS, "item": list(range(6))}), other)
        path = tmp_path / "mixed.toml"
        path.write_text(
            f"""window = "1 min"
[left]
source = "{parquet.name}"
time = "ts"
key = "item"
[right]
source = "{other.name}"
time = "ts"
key = "item"
""",
            encoding="utf-8",
        )
        message = told(call("run", str(path), "--out", str(tmp_path / "out")))
        assert "type" in message or "text" in message

    def test_rows_that_cannot_be_used_are_counted_and_the_rest_is_joined(self, tmp_path: Path) -> None:
        path = tmp_path / "dirty.csv"
        path.write_text(
            "ts,item,shop\n"
            "2024-01-01 00:00:00,a,0\n"
            "2024-01-01 00:00:30,a,1\n"
            "yesterday,a,1\n"
            ",a,0\n"
            "2024-01-01 00:01:00,a\n"
            "2024-01-01 00:01:30,,1\n",
            encoding="utf-8",
        )
        out = tmp_path / "out"
        result = call("demo", "--data", str(path), *SIDES, "--out", str(out))
        assert result.exit_code == 0, result.output
        run = json.loads((out / "report.json").read_text(encoding="utf-8"))["runs"][0]
        assert run["exact_pairs"] == 1
        left, right = run["accounting"]["left"], run["accounting"]["right"]
        for side in (left, right):
            assert side["tuples_in"] == side["applied"] + side["late"] + side["shed"] + side["rejected"]
        # The line with two fields belongs to neither stream's condition, so both count it.
        assert left["rejected"] == 2
        assert right["rejected"] == 2


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_without_a_terminal_progress_is_json_lines_and_the_table_fits(
    parquet: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    done = call("demo", "--data", str(parquet), *SIDES, "--out", str(tmp_path / "out"))
    assert done.exit_code == 0, done.stderr
    events = [json.loads(line) for line in done.stderr.splitlines()]
    assert {"Spark start", "preparation", "exact answer", "queries", "report"} <= {each["stage"] for each in events}
    assert max(len(line) for line in done.stdout.splitlines() if "/" not in line) <= 80
    assert "Time:" in done.stdout
