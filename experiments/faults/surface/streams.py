"""Standard streams that are closed, full or of few characters: one sentence and an exit status, never a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from nile.experiments.faults.fault import Fault, expect

__all__ = ["FAULT", "SITUATIONS"]

_CREATE = "CREATE STREAM s FROM '{file}' TIMESTAMP BY t"
_READ = "SELECT k, t FROM s"


@dataclass(frozen=True, slots=True)
class _Situation:
    """What a shell does around a command, the exit statuses that are right, and words of what must be told.

    redirection: behind the command; environment: beside that of this process.
    """

    redirection: str
    statuses: tuple[int, ...]
    told: str = ""
    environment: Mapping[str, str] | None = None


_ASCII = {"PYTHONIOENCODING": "ascii"}
SITUATIONS: Mapping[str, _Situation] = {
    "closed input": _Situation("<&-", (0,)),
    "closed output": _Situation(">&-", (2,), "standard output: needed a place to write to; got a closed one"),
    "closed errors": _Situation("2>&-", (0,)),
    "all closed": _Situation("<&- >&- 2>&-", (2,)),
    "full disk": _Situation("> /dev/full", (1,), "standard output: cannot be written: No space left"),
    "reader who leaves": _Situation("| true", (0, 1)),
    "ASCII output": _Situation("", (0,), environment=_ASCII),
    "input that is no text": _Situation("< {noise}", (0, 2)),
}
_COMMANDS = (
    'sql "{create}" "{read}"',
    'sql --format csv "{create}" "{read}"',
    'sql --format json "{create}" "{read}"',
    'sql --format markdown "{create}" "{read}"',
    "sql < {script}",
    "--help",
    "run --example",
    "bench",
)


def attempt(seed: int) -> None:
    """One command in one situation."""
    situations = tuple(SITUATIONS.values())
    _tried(_COMMANDS[seed // len(situations) % len(_COMMANDS)], situations[seed % len(situations)])


def control(seed: int) -> None:
    """A program that writes as Python does by itself."""
    program = "import sys; sys.stdin.isatty(); print('caf\\u00e9' * 10_000); sys.stdout.flush()"
    hard = [SITUATIONS[name] for name in ("closed input", "closed output", "full disk", "ASCII output")]
    _checked(f'{sys.executable} -c "{program}"', hard[seed % len(hard)], {})


def _tried(command: str, situation: _Situation) -> None:
    with TemporaryDirectory(prefix="nile-faults-") as name:
        folder = Path(name)
        files = {"file": folder / "s.csv", "script": folder / "s.sql", "noise": folder / "noise"}
        files["file"].write_text("t,k\n1,a\n2,caf\u00e9\n", encoding="utf-8")
        files["noise"].write_bytes(b"SELECT '\xff\xfe' FROM nothing;\x00\xc3")
        create = _CREATE.format(file=files["file"])
        files["script"].write_text(f"{create};\n{_READ};\n", encoding="utf-8")
        given = {key: str(path) for key, path in files.items()} | {"create": create, "read": _READ}
        _checked(f"{sys.executable} -m nile.experiments.cli {command.format(**given)}", situation, given)


def _checked(command: str, situation: _Situation, given: Mapping[str, str]) -> None:
    line = f"{command} {situation.redirection.format(**given)}" if given else f"{command} {situation.redirection}"
    environment = {**os.environ, **(situation.environment or {})}
    run = subprocess.run(
        ["/bin/sh", "-c", line], stdin=subprocess.DEVNULL, capture_output=True, env=environment, check=False
    )  # fmt: skip
    told = run.stderr.decode("utf-8", "replace")
    expect("Traceback" not in told and "Exception ignored" not in told, f"a traceback: {told[-300:]!r} of {line}")
    expect(run.returncode in situation.statuses, f"status {run.returncode}, told {told[-300:]!r}, of {line}")
    expect(situation.told in told, f"{line} told {told[-300:]!r}")


FAULT = Fault(
    "streams", "standard streams closed, full, of few characters", "one sentence and a status", attempt, control,
    full=len(_COMMANDS) * len(SITUATIONS), small=8,
)  # fmt: skip
