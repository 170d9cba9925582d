"""Stores that two processes want, that are read or copied while they are written, or that may no longer be written.

Clocks that are set back, too.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import numpy as np

import nile
from nile.experiments.faults.fault import Fault, Wrong, expect, generator

__all__ = ["FAULT"]

_NAME = "stores"
_COLUMNS = [("t", "int64"), ("v", "int64")]
_OPEN = """
import sys, nile
try:
    nile.connect(sys.argv[1])
except nile.StoreLocked as error:
    sys.exit(0 if error.pid == int(sys.argv[2]) else 3)
sys.exit(4)
"""


def attempt(seed: int) -> None:
    """One situation over a store that is pushed to; what comes back are whole pushes, as of a checkpoint."""
    rng = generator(_NAME, seed)
    _SITUATIONS[seed % len(_SITUATIONS)](rng, lambda rows: rows)


def control(seed: int) -> None:
    """The same where what was read back lost a row."""
    rng = generator(_NAME, seed)
    _SITUATIONS[1 + seed % (len(_SITUATIONS) - 1)](rng, lambda rows: rows[1:])


Read = Callable[[list[int]], list[int]]


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="nile-faults-") as name:
        yield Path(name)


def _push(db: nile.Database, done: int, rows: int) -> int:
    db.push("s", {"t": range(done, done + rows), "v": range(done, done + rows)})
    return done + rows


def _rows(db: nile.Database) -> list[int]:
    return [row[0] for row in db.sql("SELECT v FROM s").fetchall()]


def _whole(rows: list[int], ends: list[int], what: str) -> None:
    """The rows are 0, 1, 2, ... up to the end of a checkpoint."""
    expect(rows == list(range(len(rows))), f"{what}: rows are lost or doubled")
    expect(len(rows) in ends, f"{what}: {len(rows)} rows, which no checkpoint had: {ends}")


def _two_openers(rng: np.random.Generator, read: Read) -> None:
    with _folder() as folder, nile.connect(folder / "store") as db:
        db.stream("s", _COLUMNS, time="t")
        done = _push(db, 0, int(rng.integers(1, 50)))
        run = subprocess.run([sys.executable, "-c", _OPEN, str(folder / "store"), str(os.getpid())], check=False)
        expect(run.returncode == 0, f"another process opened the store, or was not told by whom it is held: {run}")
        try:
            nile.connect(folder / "store")
        except nile.StoreLocked:
            pass
        else:
            raise Wrong("one process opened a store twice")
        _push(db, done, 1)
        _whole(read(_rows(db)), [done + 1], "the writer")


def _read_while_written(rng: np.random.Generator, read: Read) -> None:
    with _folder() as folder, nile.connect(folder / "store", checkpoint=None) as db:
        db.stream("s", _COLUMNS, time="t")
        done, ends = 0, [0]
        for _ in range(int(rng.integers(1, 5))):
            done = _push(db, done, int(rng.integers(1, 400)))
            db.checkpoint()
            ends.append(done)
            reader = nile.connect(folder / "store", read_only=True)
            done = _push(db, done, int(rng.integers(1, 400)))
            if rng.random() < 0.5:
                db.checkpoint()
                ends.append(done)
            with reader:
                _whole(read(_rows(reader)), ends, "a reader")


def _copied_while_written(rng: np.random.Generator, read: Read) -> None:
    """A copy that is made file by file between two checkpoints opens, or says that it is not whole."""
    with _folder() as folder, nile.connect(folder / "store", checkpoint=None) as db:
        db.stream("s", _COLUMNS, time="t")
        state = {"done": 0}
        ends = [0]

        def more(source: str, target: str) -> object:
            if rng.random() < 0.3:
                state["done"] = _push(db, state["done"], int(rng.integers(1, 200)))
                db.checkpoint()
                ends.append(state["done"])
            try:
                return shutil.copy2(source, target)
            except FileNotFoundError:
                return target  # taken away by the writer: the copy is without it

        state["done"] = _push(db, 0, int(rng.integers(1, 400)))
        db.checkpoint()
        ends.append(state["done"])
        shutil.copytree(folder / "store", folder / "copy", copy_function=more)
        try:
            copy = nile.connect(folder / "copy", read_only=True)
        except nile.StoreError:
            expect(len(ends) > 2, "a copy of a store that nobody wrote to does not open")
            return
        with copy:
            found = read(_rows(copy)) if "s" in copy.streams else []
            _whole(found, ends, "a copy")


def _clock_set_back(rng: np.random.Generator, read: Read) -> None:
    """The clock of the machine goes back between pushes and checkpoints; the newest generation is still the newest."""
    real = time.time
    with _folder() as folder:
        done = 0
        for _ in range(int(rng.integers(2, 5))):
            back = float(rng.integers(0, 10**8))
            with mock.patch("time.time", lambda back=back: real() - back), nile.connect(folder / "store") as db:
                if not db.streams:
                    db.stream("s", _COLUMNS, time="t")
                done = _push(db, done, int(rng.integers(1, 200)))
                db.checkpoint()
                done = _push(db, done, 1)
            with nile.connect(folder / "store", read_only=True) as again:
                _whole(read(_rows(again)), [done], "after the clock was set back")


@contextmanager
def _only_read(folder: Path) -> Iterator[None]:
    """Within the block this process cannot write to this folder, or to any below it.

    As root it becomes nobody for so long: root is allowed what is allowed to no one.
    """
    paths = [folder, *folder.rglob("*")]
    root, nobody = os.geteuid() == 0, pwd.getpwnam("nobody").pw_uid
    folder.parent.chmod(0o755)
    for each in paths:
        if root:
            os.chown(each, nobody, -1)
        if each.is_dir():
            each.chmod(0o555)
    if root:
        os.seteuid(nobody)
    try:
        with contextlib.suppress(PermissionError):
            (folder / "made").touch()
            raise Wrong("a folder that may only be read was written to: the situation is none")
        yield
    finally:
        if root:
            os.seteuid(0)
        for each in paths:
            if each.is_dir():
                each.chmod(0o755)


def _turns_read_only(rng: np.random.Generator, read: Read) -> None:
    """The folder may no longer be written: checkpoints say so, answers go on, and what is written later has it all."""
    with _folder() as folder:
        store = folder / "store"
        with nile.connect() as other:  # nobody may not be allowed to read what Python loads when it is first used
            other.stream("s", _COLUMNS, time="t")
            _push(other, 0, 1)
            _rows(other)
        db = nile.connect(store, checkpoint=None)
        db.stream("s", _COLUMNS, time="t")
        kept = done = _push(db, 0, int(rng.integers(1, 400)))
        db.checkpoint()
        for _ in range(int(rng.integers(1, 4))):
            with _only_read(store):
                done = _push(db, done, int(rng.integers(1, 400)))
                _refused(db.checkpoint)
                _whole(_rows(db), [done], "the writer")
                with nile.connect(store, read_only=True) as reader:
                    _whole(read(_rows(reader)), [kept], "a reader of what may only be read")
            if rng.random() < 0.5:
                db.checkpoint()
                kept = done
        if rng.random() < 0.5:
            db.close()
            kept = done
        else:
            with _only_read(store):
                _refused(db.close)
                _refused(lambda: nile.connect(store))
        with nile.connect(store) as again:
            _whole(read(_rows(again)), [kept], "opened again")


def _refused(change: Callable[[], object]) -> None:
    try:
        change()
    except nile.StoreError:
        return
    raise Wrong("something was written where nothing can be")


_SITUATIONS = (_two_openers, _read_while_written, _copied_while_written, _clock_set_back, _turns_read_only)

FAULT = Fault(
    _NAME, "two openers; read, copied and made read-only while it is written; a clock set back",
    "whole pushes, or a clear error", attempt, control, full=400, small=20,
)  # fmt: skip
