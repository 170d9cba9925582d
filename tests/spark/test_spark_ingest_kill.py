"""An ingest that ends anywhere: what is visible is whole, and the next run completes it to the same bytes."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from child_spark_ingest import SCHEMA, batch
from store_killer import ROOT, Kills, kill_all_of_it, kill_over_and_over

from nile.pyramid.lake.lake import DAY, ORDINAL, LakeStream, Layout
from nile.pyramid.lake.part import write_part
from nile.spark.java import find_java
from nile.summaries.errors import JavaMissing, SourceMissing, StoreWriteError

BATCHES = 3
OPERATIONS = ((os, "fsync"), (os, "replace"), (os, "mkdir"), (os, "unlink"), (shutil, "rmtree"))


class Crash(BaseException):
    """The process ended: no `except Exception` sees it."""


def files_of(root: Path) -> dict[str, bytes]:
    """Every file of a lake but its lock."""
    found = [file for file in root.rglob("*") if file.is_file() and file.name != "_lock"]
    return {str(file.relative_to(root)): file.read_bytes() for file in found}


def append(root: Path, number: int) -> None:
    """What an ingest does once its tasks know the rows: files staged, moved and committed; again changes nothing."""
    rng = np.random.default_rng(number)
    ts = np.sort(rng.integers(0, 2 * DAY, 40)) + number * 2 * DAY
    table = pa.table([ts // 1_000, [f"item {n}" for n in rng.integers(0, 9, 40)], np.arange(40)], schema=SCHEMA)
    try:
        stream = LakeStream.open(root, "sales")
    except SourceMissing:
        stream = LakeStream.create(root, Layout("sales", "at", "item", SCHEMA, DAY, 4))
    with stream.writing() as now:
        if any(one["id"] == number for one in now.batches):
            return
        staged = []
        for day in np.unique(ts // DAY):
            at = np.flatnonzero(ts // DAY == day)
            file = now.staging() / f"{day}.parquet"
            ordinals = now.tuples + at
            staged.append((file, write_part(file, ordinals, ts[at], table.take(pa.array(at)), "item", bits=4)))
        aside = now.staging() / "aside.parquet"
        pq.write_table(pa.table({"reason": ["late"]}), aside)
        now.commit(staged, {"id": number}, [(aside, 1)])


def grow(root: Path) -> None:
    for number in range(BATCHES):
        append(root, number)


def seen(root: Path) -> int:
    """How many batches a reader sees, which must be whole."""
    try:
        stream = LakeStream.open(root, "sales")
    except SourceMissing:
        return 0
    assert stream.recovered is None
    assert stream.verify(deep=True) == []
    assert [one["id"] for one in stream.batches] == list(range(len(stream.batches)))
    tables = list(stream.read([ORDINAL]))
    ordinals = sorted(pa.concat_tables(tables).column(ORDINAL).to_pylist()) if tables else []
    assert ordinals == list(range(40 * len(stream.batches)))
    return len(stream.batches)


@contextmanager
def failing(at: int, error: BaseException, *, after: bool = False) -> Iterator[list[int]]:
    """Operation number `at` raises instead, or after it is done; a file that was to be synced then is cut in half."""
    done = [0]

    def wrapped(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def operation(*args: Any, **more: Any) -> Any:
            done[0] += 1
            if done[0] != at:
                return real(*args, **more)
            if after:
                with suppress(OSError):
                    real(*args, **more)
            elif name == "fsync":
                with suppress(OSError):  # a directory
                    os.ftruncate(args[0], os.fstat(args[0]).st_size // 2)
            raise error

        return operation

    with pytest.MonkeyPatch.context() as patched:
        for module, name in OPERATIONS:
            patched.setattr(module, name, wrapped(name, getattr(module, name)))
        yield done


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, bytes], int]:
    """The files of a lake whose ingest never failed, and the operations it took."""
    grow(tmp_path_factory.mktemp("first"))  # what is imported and compiled on first use is written too
    root = tmp_path_factory.mktemp("whole")
    with failing(-1, Crash()) as done:
        grow(root)
    return files_of(root), done[0]


@pytest.mark.parametrize("after", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_crash_at_any_operation_leaves_whole_batches_and_the_next_run_the_same_bytes(
    tmp_path: Path, whole: tuple[dict[str, bytes], int], after: bool
) -> None:
    files, operations = whole
    assert operations > 20 * BATCHES
    for at in range(1, operations + 1):
        root = tmp_path / str(at)
        with failing(at, Crash(), after=after), pytest.raises(Crash):
            grow(root)
        came = seen(root)
        with failing(at // 2 + 1, Crash()), suppress(Crash):  # the run that mends may end too
            append(root, min(came, BATCHES - 1))
        assert seen(root) in (came, came + 1)
        grow(root)
        assert seen(root) == BATCHES
        assert files_of(root) == files


def test_an_operation_that_fails_leaves_whole_batches_and_the_next_run_the_same_bytes(
    tmp_path: Path, whole: tuple[dict[str, bytes], int]
) -> None:
    files, operations = whole
    for at in range(1, operations + 1):
        root = tmp_path / str(at)
        with (
            failing(at, OSError(errno.ENOSPC, "No space left on device")),
            suppress(OSError, StoreWriteError),
        ):
            grow(root)
        seen(root)
        grow(root)
        assert files_of(root) == files


def test_a_commit_that_overwrites_its_only_manifest_is_found_by_the_same_crashes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: tuple[dict[str, bytes], int]
) -> None:
    """The control: the manifest written in place, without a draft."""
    _, operations = whole
    real = Path.replace

    def in_place(self: Path, target: Path) -> Path:
        if self.name != "_manifest-draft":
            return real(self, target)
        target.write_bytes(self.read_bytes()[:100])
        with target.open("r+b") as file:
            os.fsync(file.fileno())
            file.write(self.read_bytes())
        self.unlink()
        return target

    monkeypatch.setattr(Path, "replace", in_place)
    wrong = 0
    for at in range(1, operations + BATCHES):
        root = tmp_path / str(at)
        with failing(at, Crash()), suppress(Crash):
            grow(root)
        try:
            seen(root)
        except (AssertionError, Exception):
            wrong += 1
    assert wrong >= BATCHES


def rows_of(stream: LakeStream) -> list[dict[str, Any]]:
    """The tuples in order."""
    tables = list(stream.read([ORDINAL, *SCHEMA.names]))
    return pa.concat_tables(tables).sort_by(ORDINAL).drop_columns([ORDINAL]).to_pylist() if tables else []


def expected(batches: int) -> tuple[list[dict[str, Any]], list[dict[str, int]]]:
    """The tuples, and the account of each batch, by the rules as one would say them."""
    tuples: list[dict[str, Any]] = []
    accounts = []
    for number in range(batches):
        until = tuples[-1]["at"] if tuples else None
        ids = {row["id"] for row in tuples}
        rows = batch(number).to_pylist()
        timed = sorted((row for row in rows if row["at"] is not None), key=lambda row: row["at"])
        late = duplicate = 0
        for row in timed:
            if row["id"] in ids:
                duplicate += 1
            elif until is not None and row["at"] < until:
                late += 1
            else:
                tuples.append(row)
            ids.add(row["id"])
        accounts.append({"in": len(rows), "late": late, "duplicate": duplicate, "rejected": len(rows) - len(timed)})
    return tuples, accounts


def verified(lake: Path) -> int:
    """How many batches are there, which must be what the rules say."""
    try:
        stream = LakeStream.open(lake, "sales")
    except SourceMissing:
        return 0
    assert stream.verify(deep=True) == []
    tuples, accounts = expected(len(stream.batches))
    told = [{**{name: one[name] for name in ("in", "late", "duplicate")}, "rejected": sum(one["rejected"].values())}
            for one in stream.batches]  # fmt: skip
    assert json.dumps(told) == json.dumps(accounts)
    assert rows_of(stream) == tuples
    return len(stream.batches)


def command(where: Path) -> list[str | os.PathLike[str]]:
    """The child on a folder of its own."""
    (where / "tmp").mkdir(parents=True, exist_ok=True)
    return ["env", f"TMPDIR={where / 'tmp'}", sys.executable, ROOT / "tests/harness/child_spark_ingest.py", where]


def killed(folder: Path, count: int, seed: int, *, longest: float, early: float) -> Kills:
    """Kills of an ingest."""

    def verify(_: int) -> int:
        return verified(folder / "lake")

    return kill_over_and_over(command(folder), verify, count, seed, longest=longest, early=early, kill=kill_all_of_it)


@pytest.fixture
def java() -> None:
    try:
        find_java()
    except JavaMissing as missing:
        pytest.skip(str(missing))


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.usefixtures("java")
@pytest.mark.parametrize("seed", range(5))
def test_an_ingest_killed_five_times_has_lost_and_doubled_nothing(
    tmp_path: Path, record_property: Callable[[str, object], None], seed: int
) -> None:
    """In the end the lake has the bytes of one that was never killed.  Together twenty-five kills."""
    folder = tmp_path / "one"
    done = killed(folder, 5, seed, longest=8.0, early=0.1)
    record_property("kills", str(done))
    assert done.counted == 5
    lakes = []
    for _ in range(2):
        subprocess.run([*command(folder), str(done.steps + 1)], check=True, cwd=ROOT, capture_output=True)
        lakes.append(files_of(folder / "lake"))
        folder.rename(tmp_path / str(len(lakes)))  # manifests say where an input was: the other has the same place
    assert lakes[0].keys() == lakes[1].keys()
    assert [name for name in lakes[0] if lakes[0][name] != lakes[1][name]] == []


def _of(place: Path) -> list[str]:
    """The processes that name a place."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found += [file.parent.name] if str(place).encode() in file.read_bytes() else []
    return found


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="only Linux tells what others run")
@pytest.mark.parametrize("seconds", [0.3, 1.0, 2.0, 3.0, 4.0, 6.0])
def test_ctrl_c_during_an_ingest_leaves_no_java_behind_and_the_next_completes_it(
    seconds: float, tmp_path: Path
) -> None:
    (tmp_path / "rows.csv").write_text("ts,k\n" + "".join(f"{n},{n % 9}\n" for n in range(5_000)))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    said = "ingest rows.csv lake --stream s --time ts --key k --json"
    asked = [sys.executable, "-m", "nile.experiments.cli", *said.split()]
    environment = {**os.environ, "TMPDIR": str(scratch)}
    answered = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.default_int_handler)}
    child = subprocess.Popen(asked, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             text=True, **answered)  # fmt: skip
    try:
        _, said = child.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        child.send_signal(signal.SIGINT)
        _, said = child.communicate(timeout=60)
    assert child.returncode in (0, 130) or (seconds < 1 and child.returncode == -signal.SIGINT), said
    if child.returncode == 130:
        assert said.splitlines()[-1] == "stopped"
        assert "Traceback" not in said
    for _ in range(100):  # Java ends when its pipe does
        if not _of(scratch):
            break
        time.sleep(0.1)
    assert not _of(scratch)
    again = subprocess.run(asked, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert json.loads(again.stdout)["tuples"] == 5_000
