"""Compiled kernels are kept between processes, for as long as somebody uses that version of them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

DAY = 86_400

CHILD = """
import numpy as np
from nile.summaries.kernels import cold_start
{then}
print(cold_start())
"""


def child(home: Path, then: str = "") -> str:
    """Whether a process with this cache directory began cold."""
    run = subprocess.run(
        [sys.executable, "-c", CHILD.format(then=then)],
        env={**os.environ, "NUMBA_CACHE_DIR": str(home)},
        capture_output=True,
        text=True,
        check=True,
    )
    return run.stdout.strip()


def said(home: Path, then: str) -> int:
    """How often a process that compiles kernels for longer than it is patient says so."""
    program = f"""
import warnings
import numpy as np
import nile
from nile.summaries import kernels
kernels._PATIENCE = 0.001
with warnings.catch_warnings(record=True) as came:
    warnings.simplefilter("always")
    {then}
    db = nile.connect()
    for name in "ab":
        db.register(name, {{"ts": np.arange(9.0), "k": np.arange(9) % 2}}, time="ts")
    db.sql("SELECT a.k FROM a, b WHERE a.k = b.k WINDOW 3").to_arrow()
print(sum(issubclass(each.category, nile.CompileWarning) for each in came))
"""
    run = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "NUMBA_CACHE_DIR": str(home)}, capture_output=True,
        text=True, check=True,
    )  # fmt: skip
    return int(run.stdout)


@pytest.mark.slow
def test_a_process_that_waits_for_kernels_says_so_once_and_the_next_has_none_to_wait_for(tmp_path: Path) -> None:
    assert said(tmp_path / "told", "kernels.told()") == 0
    assert said(tmp_path / "cold", "pass") == 1
    assert said(tmp_path / "cold", "pass") == 0


def version(home: Path, name: str, *, days: int) -> Path:
    """The cache of another version, last begun with so many days ago."""
    package = home / f"kernels-{name}" / "pyramid_0123"
    package.mkdir(parents=True)
    for file in ("find-1.py311.nbi", "find-1.py311.1.nbc", "notes.txt"):
        (package / file).write_bytes(b"x")
    os.utime(package.parent, (time.time() - days * DAY,) * 2)
    return package


def test_a_new_version_empties_caches_that_nobody_used_for_a_month(tmp_path: Path) -> None:
    old, recent = version(tmp_path, "old", days=31), version(tmp_path, "recent", days=29)
    foreign = tmp_path / "other" / "pyramid_0123"
    foreign.mkdir(parents=True)
    (foreign / "find-1.py311.nbi").write_bytes(b"x")
    assert child(tmp_path) == "True"
    assert [file.name for file in old.iterdir()] == ["notes.txt"]
    assert len(list(recent.iterdir())) == 3
    assert len(list(foreign.iterdir())) == 1
    again = version(tmp_path, "again", days=31)
    assert child(tmp_path) == "False"
    assert len(list(again.iterdir())) == 3, "only a new version looks"


def test_a_version_in_use_stays(tmp_path: Path) -> None:
    assert child(tmp_path) == "True"
    (mine,) = tmp_path.glob("kernels-*")
    os.utime(mine, (time.time() - 40 * DAY,) * 2)
    assert child(tmp_path) == "False"
    assert mine.stat().st_mtime > time.time() - DAY


def test_a_cache_that_is_emptied_under_a_process_is_filled_again(tmp_path: Path) -> None:
    called = (
        "from nile.summaries.hash_kernels import mix_all\nmix_all(np.ones(1, np.uint64), 1, np.ones(1, np.uint64))\n"
    )
    assert child(tmp_path, called) == "True"
    (mine,) = tmp_path.glob("kernels-*")
    made = sorted(mine.glob("*/*.nb[ic]"))
    assert {file.suffix for file in made} == {".nbi", ".nbc"}
    emptied = f"from pathlib import Path\nfor file in Path({str(mine)!r}).glob('*/*'): file.unlink()\n"
    assert child(tmp_path, emptied + called) == "False"
    assert sorted(mine.glob("*/*.nb[ic]")) == made
