"""`nile doctor --spark`: a session is started, Nile's code sent, and a kernel run on every executor that answers."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nile.base.machine import peak_memory
from nile.base.version import __version__
from nile.engine.doctor import Check
from nile.spark.failure import spark_failures
from nile.spark.masters import task_slots
from nile.spark.session import spark_session
from nile.summaries.errors import ConfigError, JavaMissing, NileError, SparkFailed
from nile.summaries.heavy import numba, pa
from nile.summaries.lazy import lazy

if TYPE_CHECKING:
    import numpy as np

    from nile.summaries import hash_kernels
else:
    np = lazy("numpy")
    hash_kernels = lazy("nile.summaries.hash_kernels")

__all__ = ["Probe", "executor_checks", "spark_checks"]

_GIB = 1 << 30
_LEAST_DISK = 1 * _GIB
_SLOW = 20.0  # seconds a kernel may take the first time before it is worth a word
_KEYS = 4_096
_COMPARED = ("Python", "numba", "numpy", "pyarrow", "Nile")
_SEEN = "executor string, code string, first double, again double, memory bigint, disk bigint, shared boolean"
PROBED = ", ".join((*(f"{name} string" for name in _COMPARED), _SEEN))


@dataclass(frozen=True, slots=True)
class Probe:
    """What a task of the check does.  shared: a file of the driver, which machines should see alike."""

    shared: str

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For `mapInArrow`: PROBED out, a row per task."""
        for _ in batches:
            pass
        keys, found = np.arange(_KEYS, dtype=np.uint64), np.empty(_KEYS, np.uint64)
        times = [time.perf_counter()]
        for _ in range(2):
            hash_kernels.mix_all(keys, np.uint64(1), found)
            times.append(time.perf_counter())
        row = {
            **versions(),
            "executor": f"{socket.gethostname()} (process {os.getppid()})",
            "code": str(Path(__file__).parents[1]),
            "first": times[1] - times[0],
            "again": times[2] - times[1],
            "memory": peak_memory(),
            "disk": shutil.disk_usage(Path.cwd()).free,
            "shared": Path(self.shared).exists(),
        }
        yield pa.RecordBatch.from_pylist([row])


def versions() -> dict[str, str]:
    """What must be alike here and on executors, by name."""
    said = (platform.python_version(), numba.__version__, np.__version__, pa.__version__, __version__)
    return dict(zip(_COMPARED, said, strict=True))


def spark_checks(master: str | None = None, remote: str | None = None) -> list[Check]:
    """Starts (or joins) a session and looks at it and its executors; raises nothing.  Cost: 10 s and more."""
    needed = "Spark starts and answers"
    begin = time.perf_counter()
    try:
        session = spark_session("nile-doctor", master=master, remote=remote)
        with spark_failures("Spark session"):
            slots, version, at = task_slots(session), session.version, remote or session.conf.get("spark.master")
    except (JavaMissing, ConfigError, SparkFailed) as error:
        return [Check("Spark session", "gap", str(error), needed, "mend what it says, then run `nile doctor --spark`")]
    started = time.perf_counter() - begin
    found = f"Spark {version} at {at}, {slots} tasks at once, after {started:.1f} s"
    return [Check("Spark session", "ok", found, needed), *_looked_at(session, slots)]


def _looked_at(session: Any, slots: int) -> list[Check]:
    needed = "Nile's code runs on every executor"
    with tempfile.NamedTemporaryFile(prefix="nile-doctor-") as shared:
        begin = time.perf_counter()
        try:
            with spark_failures("a task"):
                tasks = session.range(0, 2 * slots, 1, 2 * slots)
                rows = [row.asDict() for row in tasks.mapInArrow(Probe(shared.name).run, PROBED).collect()]
        except NileError as error:
            mend = (
                "install numpy, numba, pyarrow and pandas as they are here for the executors' Python, or name another "
                "one in PYSPARK_PYTHON"
            )
            return [Check("executors", "gap", str(error), needed, mend)]
        took = time.perf_counter() - begin
    names = sorted({row["executor"] for row in rows})
    listed = f"{len(names)} answered in {took:.1f} s: {', '.join(names)}"
    return [Check("executors", "ok", listed, needed), *executor_checks(rows, versions())]


def executor_checks(rows: Sequence[dict[str, Any]], here: dict[str, str]) -> list[Check]:
    """What the answers of tasks say, rows of PROBED.  here: the versions of this process."""
    return [
        _version_check(rows, here),
        _kernel_check(rows),
        Check("memory, executors", "ok", f"{max(row['memory'] for row in rows) / _GIB:.2f} GiB a task", "any"),
        _disk_check(rows),
        _shared_check(rows),
    ]


def _version_check(rows: Sequence[dict[str, Any]], here: dict[str, str]) -> Check:
    told = sorted(
        {
            f"{row['executor']} has {name} {row[name]}, not {wanted}"
            for row in rows
            for name, wanted in here.items()
            if row[name] != wanted
        }
    )
    needed = ", ".join(f"{name} {version}" for name, version in here.items())
    if told:
        mend = "install these versions there, or name a Python that has them in PYSPARK_PYTHON"
        return Check("versions, executors", "gap", "; ".join(told), needed, mend)
    return Check("versions, executors", "ok", "as here", needed)


def _kernel_check(rows: Sequence[dict[str, Any]]) -> Check:
    first, again = max(row["first"] for row in rows), min(row["again"] for row in rows)
    found = f"{first:.2f} s the first time, {again / _KEYS * 1e9:.1f} ns per key after that"
    needed = f"less than {_SLOW:.0f} s the first time"
    if first > _SLOW:
        mend = "a home or NUMBA_CACHE_DIR that tasks may write keeps kernels compiled; the next run tells"
        return Check("kernel, executors", "note", found, needed, mend)
    return Check("kernel, executors", "ok", found, needed)


def _disk_check(rows: Sequence[dict[str, Any]]) -> Check:
    least = min(rows, key=lambda row: int(row["disk"]))
    found, needed = f"{least['disk'] / _GIB:.1f} GiB free", f"{_LEAST_DISK // _GIB} GiB"
    if least["disk"] < _LEAST_DISK:
        return Check("disk, executors", "gap", found, needed, f"make room on {least['executor']}, where Spark works")
    return Check("disk, executors", "ok", found, needed)


def _shared_check(rows: Sequence[dict[str, Any]]) -> Check:
    blind = sorted({row["executor"] for row in rows if not row["shared"]})
    place = tempfile.gettempdir()
    needed = f"executors see {place} as it is here, where ingest and exact jobs put links to files"
    if blind:
        mend = "set TMPDIR to a directory that every machine sees alike, as the lake must be"
        return Check("shared files", "gap", f"not seen by {', '.join(blind)}", needed, mend)
    return Check("shared files", "ok", "seen", needed)
