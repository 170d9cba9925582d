"""Shared by all tests: derandomised properties in CI, the retail data where it is, one Spark session."""

from __future__ import annotations

import gc
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Generator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["spark_fixtures"]

ROOT = Path(__file__).parents[1]
RETAIL = ROOT.parent / "shared" / "data" / "retail_uci.parquet"

SHARED = Path("/dev/shm")
if "TMPDIR" not in os.environ and SHARED.is_dir():
    # Stores sync tens of thousands of times, milliseconds each on a disk and nothing in memory.  No test relies on it:
    # crashes are played on disks of our own making, kills leave what the system has taken.
    held = os.statvfs(SHARED)
    if held.f_bavail * held.f_frsize > 4 << 30 and not held.f_flag & (os.ST_NOEXEC | os.ST_RDONLY):
        os.environ["TMPDIR"] = str(SHARED)
        tempfile.tempdir = None

if sys.dont_write_bytecode:
    # As in many containers, no bytecode beside the sources: each of some hundred processes would compile all that it
    # imports, two seconds of work.  A place of its own keeps it for them, the workers among them.
    kept = ROOT / ".pytest_cache" / "bytecode"
    sys.pycache_prefix = os.environ["PYTHONPYCACHEPREFIX"] = str(kept)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    for gone in kept.glob(f"{tempfile.gettempdir().lstrip(os.sep)}/pytest-of-*"):  # copies of Nile in an earlier run
        shutil.rmtree(gone, ignore_errors=True)

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Of jobs in the background a shell says that they ignore Ctrl-C, and so do all that they start; some tests send it.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Kernels compile inside a first example, and shared machines pause: no deadlines.
_QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]
settings.register_profile("ci", deadline=None, derandomize=True, suppress_health_check=_QUIET, print_blob=True)
settings.register_profile("local", deadline=None, suppress_health_check=_QUIET, print_blob=True)
# What a cold cache makes Nile say is asked where it is meant; other tests look for warnings of their own.
os.environ.setdefault("PYTHONWARNINGS", "ignore:compiling kernels")
settings.load_profile("ci" if os.environ.get("CI") else "local")


@pytest.fixture(autouse=True)
def _figures_that_are_the_same_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the fixed prices, unless a test names others: what a budget buys must not depend on where tests run."""
    monkeypatch.setenv("NILE_COSTS", "engine")
    monkeypatch.setenv("NILE_PRICES", "shipped")


@pytest.fixture(scope="session")
def retail() -> Path:
    """The real retail data; the test is skipped where it is not beside the project."""
    if not RETAIL.exists():
        pytest.skip("the retail data is not beside the project; synthetic streams cover the same code")
    return RETAIL


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected lives to the end: nobody looks for garbage in it, neither while it grows nor later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A file each at a time, but all that share the Spark session by one worker: another JVM would warm up anew."""
    from xdist.scheduler import LoadFileScheduling

    class OneSession(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            file = str(super()._split_scope(nodeid))
            return "spark" if _needs_spark(ROOT / file) else file

    return OneSession(config, log) if config.getoption("dist") == "loadfile" else None


@cache
def _needs_spark(file: Path) -> bool:
    """Whether it asks for the session: as an argument, or by its name."""
    return re.search(r'\bspark: |\("spark"\)', file.read_text()) is not None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that need Spark come first: with a file each, a slow one at the end would run alone."""
    slow = {item.path for item in items if "spark" in getattr(item, "fixturenames", ())}
    items.sort(key=lambda item: item.path not in slow)
