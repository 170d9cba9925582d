"""`nile store` as its user meets it: what is in a store, whether it is whole, what can be saved."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import nile
from nile.experiments.cli import main
from nile.pyramid.disk import StoreDirectory


def call(*arguments: object) -> Result:
    result = CliRunner().invoke(main, ["store", *map(str, arguments)])
    assert "Traceback" not in result.output
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "shop"
    with StoreDirectory.open(path) as store:
        zone = store.stage("zone", b"z" * 1_500_000)
        for n in (1, 2):
            state = {
                "format": 1,
                "streams": {"sales": {"tuples": 1_234_567 * n, "watermark": 9, "note": "x" * 100}, "returns": {}},
                "queries": {"q1": {"sql": "SELECT 1", "outputs": [1, 2]}},
                "sources": {},
            }
            store.commit(state, [zone, store.stage("state", bytes([n]) * 100)])
    return path


def damage(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def test_help_fits_eighty_columns_and_names_every_command() -> None:
    for arguments in ([], ["info"], ["check"], ["repair"]):
        output = call(*arguments, "--help").output
        assert max(len(line) for line in output.splitlines()) <= 80
    assert "store" in CliRunner().invoke(main, ["--help"]).output


def test_info_says_what_is_there(path: Path) -> None:
    result = call("info", path)
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert all(len(line) <= 80 for line in lines[1:])
    told = {line[:22].strip(): line[23:] for line in lines}
    assert told["store"] == str(path)
    assert told["epoch"].startswith("2, committed 2")
    assert told["files"] == "2 files, 1.5 MB"
    assert told["tier warm"] == told["role zone"] == "1 file, 1.5 MB"
    assert told["tier state"] == "1 file, 100 bytes"
    assert told["streams"] == "2"
    assert told["sales"].startswith("tuples 2,469,134, note xxx")
    assert told["returns"] == "none"
    assert told["q1"] == "outputs 2 entries, sql SELECT 1"
    assert told["format"] == "1"


def test_info_names_queries_whose_outputs_wait_for_a_reader(tmp_path: Path) -> None:
    with nile.connect(tmp_path / "store") as db:
        db.stream("s", [("t", "int64"), ("n", "int64")], time="t")
        db.subscribe("SELECT n FROM s WHERE n > 1 AND n < 1000000", name="lonely")
        db.push("s", {"t": [1, 2, 3, 4], "n": [1, 2, 3, 4]})
        db.advance(9)
    (line,) = [line for line in call("info", tmp_path / "store").output.splitlines() if line.startswith("  lonely")]
    assert line[23:].startswith("outputs 3, unread 3, ")


def test_info_in_json_has_all_of_it(path: Path) -> None:
    told = json.loads(call("info", "--json", path).output)
    assert told["epoch"] == 2
    assert told["state"]["streams"]["sales"]["tuples"] == 2_469_134
    assert told["roles"]["zone"] == [1, 1_500_000]


def test_an_empty_store_says_so(tmp_path: Path) -> None:
    StoreDirectory.open(tmp_path / "new").close()
    assert "0, nothing committed" in call("info", tmp_path / "new").output
    assert call("check", tmp_path / "new").exit_code == 0


def test_a_store_may_be_looked_at_while_it_is_written_to(path: Path) -> None:
    with StoreDirectory.open(path):
        assert call("info", path).exit_code == 0
        assert call("check", path).exit_code == 0
        refused = call("repair", path)
        assert refused.exit_code == 1
        assert "lock held by this process" in refused.output


def test_check_finds_what_opening_does_not_read_and_repair_drops_it(path: Path) -> None:
    well = call("check", path)
    assert well.exit_code == 0
    assert "whole generations: 2 and 1" in well.output
    (zone,) = (path / "data").glob("*-zone")
    damage(zone)
    with StoreDirectory.open(path) as store:
        assert store.recovered is None
    found = call("check", path)
    assert found.exit_code == 1
    assert f"wrong: data/{zone.name} was altered" in found.output
    assert "whole generations: none" in found.output
    assert f"nile store repair {path}" in found.output
    assert json.loads(call("check", "--json", path).output)["wrong"][0].startswith(f"data/{zone.name}")
    plan = call("repair", path)
    assert plan.exit_code == 1
    assert f"lost: data/{zone.name}" in plan.output or f"data/{zone.name} was altered" in plan.output
    assert "would: go on from epoch 2 of " in plan.output
    assert "--yes" in plan.output
    assert zone.exists()
    done = call("repair", "--yes", path)
    assert done.exit_code == 0
    assert "done; epoch 4 is in force; the report is " in done.output
    assert call("check", path).exit_code == 0
    assert "nothing to repair" in call("repair", path).output
    with StoreDirectory.open(path) as store:
        assert list(store.state["lost"]) == [f"data/{zone.name}"]


def test_a_damaged_manifest_is_told_by_info_check_and_repair(path: Path) -> None:
    damage(path / "manifest-0")
    info = call("info", path)
    assert info.exit_code == 0
    assert "1, committed" in info.output
    assert "not the newest generation" in info.output
    assert call("check", path).exit_code == 1
    done = json.loads(call("repair", "--yes", "--json", path).output)
    assert (done["action"], done["done"], done["epoch"]) == ("previous", True, 2)
    assert call("check", path).exit_code == 0


@pytest.mark.parametrize("command", ["info", "check", "repair"])
def test_a_path_that_is_no_store_is_named_and_not_touched(tmp_path: Path, command: str) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/notes.txt").write_text("x")
    (tmp_path / "empty").mkdir()
    before = sorted(tmp_path.rglob("*"))
    for name, told in (
        ("absent", "needed a store"),
        ("empty", "needed a store"),
        ("mine", "notes.txt"),
        ("mine/notes.txt", "got a file"),
    ):
        result = call(command, tmp_path / name)
        assert result.exit_code == 2
        assert str(tmp_path / name) in result.output
        assert told in result.output
    assert sorted(tmp_path.rglob("*")) == before
