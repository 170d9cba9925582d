"""What a process holds of memory, as the system tells it."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from nile.base.machine import memory_held, peak_memory

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
