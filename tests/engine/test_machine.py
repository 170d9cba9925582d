"""What a process holds of memory, as the system tells it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from nile.base.machine import crowd, memory_held, peak_memory, waited_ns

CHILD = """
from nile.base.machine import peak_memory
before = peak_memory()
held = bytearray(b"x") * (64 << 20)
print(before, peak_memory())
"""
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells it so")


def test_the_peak_is_that_of_the_process_and_not_of_the_one_that_started_it() -> None:
    held = np.ones(40_000_000)  # 320 MB that are touched
    told = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, check=True).stdout.split()
    before, after = map(int, told)
    assert peak_memory() > held.nbytes
    assert 1 << 20 < before < 150 << 20
    assert 60 << 20 < after - before < 80 << 20


def test_fields_are_told_in_bytes_and_an_unknown_one_is_none() -> None:
    anonymous, resident, peak = (memory_held(field) or 0 for field in ("RssAnon", "VmRSS", "VmHWM"))
    assert 1 << 20 < anonymous < resident <= peak
    assert memory_held("Rss") is None


def test_who_wants_the_cores_is_told_as_the_system_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert 1.0 <= crowd() < 10_000.0
    loads = tmp_path / "loadavg"
    monkeypatch.setattr("nile.base.machine._LOADS", loads)
    assert crowd() == 1.0  # nothing there
    for text, tasks in (("0.1 0.2 0.3 1/80 11", 1), (f"9 9 9 {6 * (os.cpu_count() or 1)}/80 11", 6), ("none", 1)):
        loads.write_text(text)
        assert crowd() == tasks


def test_what_a_thread_has_waited_for_a_core_is_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def waiting() -> None:
        before = waited_ns()
        time.sleep(0.05)  # it wants no core
        slept.append(waited_ns() - before)

    slept: list[int] = []
    thread = threading.Thread(target=waiting)
    thread.start()
    thread.join()
    assert slept[0] >= 0
    monkeypatch.setattr("nile.base.machine._WAITS", tmp_path / "none")
    assert waited_ns() == 0
    (tmp_path / "none").write_text("7000 512 3\n")
    assert waited_ns() == 512
