"""Nile's code on executors that have none: archives, where compiled kernels are kept, and what is told when not."""

from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from click.testing import CliRunner

from nile.engine.spark_checkup import executor_checks, versions
from nile.experiments.cli import main
from nile.spark.masters import check_remote, place, runs_here
from nile.spark.shipping import archive, archive_of
from nile.spark.sink.sink import StreamSink
from nile.summaries.errors import ConfigError, SparkFailed, StoreWriteError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

SITE = Path(np.__file__).parents[1]
TASK = """
import numpy as np
import nile.experiments.cli, nile.spark.ingesting.lake_tasks, nile.preferences.queue, nile.pyramid.lake.lake
from nile.summaries import hash_kernels, kernels
found = np.empty(300, np.uint64)
hash_kernels.mix_all(np.arange(300, dtype=np.uint64), np.uint64(7), found)
print(nile.__file__, kernels._CACHE, sum(hash_kernels.mix_all.stats.cache_hits.values()), sep="\\n")
"""


def unpacked(place: Path) -> Path:
    """Nile's code as Spark leaves it on an executor: the archive, under the package's name."""
    zipfile.ZipFile(archive()).extractall(place / "nile")
    return place


def as_a_task(code: Path, home: Path) -> list[str]:
    """What a Python without Nile, but with all that Nile needs, says when its imports begin at `code`."""
    keep = {name: value for name, value in os.environ.items() if name not in ("XDG_CACHE_HOME", "NUMBA_CACHE_DIR")}
    environment = {**keep, "PYTHONPATH": f"{code}{os.pathsep}{SITE}", "HOME": str(home)}
    command = [sys.executable, "-S", "-c", TASK]  # -S: what is installed as a path, as Nile is here, stays hidden
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=code, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_archives_hold_every_file_once_and_the_same_files_give_the_same_bytes(tmp_path: Path) -> None:
    package = tmp_path / "package"
    (package / "inner" / "__pycache__").mkdir(parents=True)
    (package / "b.py").write_text("two")
    (package / "inner" / "a.py").write_text("one")
    (package / "inner" / "__pycache__" / "a.pyc").write_bytes(b"compiled")
    first = archive_of(package)
    os.utime(package / "b.py", (0, 10**9))
    assert archive_of(package) == first
    (tmp_path / "package.zip").write_bytes(first)
    with zipfile.ZipFile(tmp_path / "package.zip") as packed:
        assert {name: packed.read(name) for name in packed.namelist()} == {"b.py": b"two", "inner/a.py": b"one"}
    (package / "b.py").write_text("TWO")
    assert archive_of(package) != first


def test_archives_are_kept_by_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    archive.cache_clear()
    try:
        made = archive()
        assert made.parent == tmp_path / "nile" / "code"
        before = made.stat().st_mtime_ns
        archive.cache_clear()
        assert archive().stat().st_mtime_ns == before
    finally:
        archive.cache_clear()


def test_archives_that_cannot_be_written_say_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nile").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    archive.cache_clear()
    with pytest.raises(StoreWriteError, match=r"needed to write Nile's code .*; got: .*; set XDG_CACHE_HOME"):
        archive()


@pytest.mark.slow
def test_a_python_without_nile_runs_its_kernels_from_the_archives_and_keeps_them_compiled(tmp_path: Path) -> None:
    here, there, home = unpacked(tmp_path / "here"), unpacked(tmp_path / "there"), tmp_path / "home"
    where, kept, hits = as_a_task(here, home)
    assert (where, hits) == (str(here / "nile/__init__.py"), "0")
    assert Path(kept).parent == home / ".cache/nile"
    # Another application, which Spark unpacks elsewhere, compiles nothing anew.
    assert as_a_task(there, home) == [str(there / "nile/__init__.py"), kept, "1"]


@pytest.mark.slow
def test_a_user_without_a_home_keeps_kernels_beside_the_code(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("no directory")
    code = unpacked(tmp_path / "code")
    assert Path(as_a_task(code, tmp_path / "home")[1]).parent == code / "nile-kernels"
    assert as_a_task(code, tmp_path / "home")[2] == "1"


def test_where_spark_is_comes_from_the_caller_or_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NILE_SPARK", raising=False)
    assert place(None, None) == (None, None)
    monkeypatch.setenv("NILE_SPARK", "sc://far:15002")
    assert place(None, None) == (None, "sc://far:15002")
    assert place("local[2]", None) == ("local[2]", None)
    monkeypatch.setenv("NILE_SPARK", "spark://far:7077")
    assert place(None, None) == ("spark://far:7077", None)
    with pytest.raises(ConfigError, match="needed a master or a remote; got both"):
        place("local[2]", "sc://far")


def test_only_tasks_beside_this_process_have_its_packages() -> None:
    assert all(map(runs_here, ("local", "local[2]", "local[*, 3]")))
    assert not any(map(runs_here, ("local-cluster[2,1,1024]", "spark://far:7077", "yarn")))


def test_a_remote_that_does_not_answer_says_which_and_how_to_start_one() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(SparkFailed) as told:
        check_remote(f"sc://127.0.0.1:{port}/;user_id=me")
    assert str(told.value) == (
        f"Spark session: needed a Spark Connect server at 127.0.0.1:{port}; got [Errno {errno.ECONNREFUSED}] "
        "Connection refused; start one (start-connect-server.sh), or check host, port and firewall"
    )
    for wrong in ("spark://far:7077", "far:15002", "sc://far:port"):
        with pytest.raises(ConfigError, match="needed a remote such as sc://host:15002; got"):
            check_remote(wrong)


def answer(**changed: Any) -> dict[str, Any]:
    """What a task of an executor as this process says, but for what is changed."""
    same = {**versions(), "executor": "one (process 7)", "first": 1.0, "again": 1e-6, "memory": 1 << 28}
    return {**same, "code": "nile", "disk": 50 << 30, "shared": True, **changed}


def test_executors_that_differ_are_named_with_what_to_do() -> None:
    assert {check.status for check in executor_checks([answer(), answer()], versions())} == {"ok"}
    odd = answer(executor="two (process 8)", Python="3.9.1", numba="0.1", first=40.0, disk=1 << 20, shared=False)
    found = {check.name: check for check in executor_checks([answer(), odd], versions())}
    here = versions()
    assert found["versions, executors"].found == (
        f"two (process 8) has Python 3.9.1, not {here['Python']}; two (process 8) has numba 0.1, not {here['numba']}"
    )
    assert "PYSPARK_PYTHON" in found["versions, executors"].mend
    assert found["disk, executors"].mend == "make room on two (process 8), where Spark works"
    assert found["shared files"].found == "not seen by two (process 8)"
    assert "TMPDIR" in found["shared files"].mend
    assert found["kernel, executors"].status == "note"
    assert [check.status for check in found.values()].count("gap") == 3


@pytest.mark.spark
def test_the_doctor_runs_a_kernel_on_every_executor_and_prints_json(spark: SparkSession) -> None:
    assert spark is not None
    told = CliRunner().invoke(main, ["doctor", "--spark", "--json"])
    said = json.loads(told.stdout)
    by_name = {check["name"]: check for check in said["checks"]}
    assert by_name["Spark session"]["found"].startswith("Spark 4.3.0 at local[2], 2 tasks at once")
    assert by_name["executors"]["found"].startswith("1 answered in ")
    assert {by_name[name]["status"] for name in by_name if name.endswith("executors")} <= {"ok", "note"}
    assert told.exit_code == (1 if said["gaps"] else 0)


def test_a_sink_refuses_to_leave_the_process_of_its_store_as_spark_connect_would_have_it() -> None:
    sink = StreamSink.__new__(StreamSink)
    sink.stream = "shop"
    with pytest.raises(ConfigError, match="needed a Spark of this process, beside the store; got Spark Connect"):
        sink.__getstate__()
