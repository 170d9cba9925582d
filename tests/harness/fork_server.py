"""Children that are forked from a process which has everything loaded, so that a kill costs no start of Python.

The server is any command that calls `serve` once it is ready to fork; the other end is `ForkServer`.  A child writes
where its parent was told to, and nothing of it is shared but what was loaded before.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any


class ForkServer:
    """Starts children: `start(stdout, stderr)` gives what a Popen is to who kills it."""

    def __init__(self, command: Sequence[str | os.PathLike[str]], cwd: Path) -> None:
        self._server = subprocess.Popen([*command], cwd=cwd, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def start(self, told: IO[bytes], complaint: IO[bytes]) -> Forked:
        """A child that writes to these files."""
        own = os.getpid()
        self.say(f"/proc/{own}/fd/{told.fileno()} /proc/{own}/fd/{complaint.fileno()}")
        return Forked(int(self.heard()), self)

    def say(self, line: str) -> None:
        assert self._server.stdin is not None
        self._server.stdin.write(line + "\n")
        self._server.stdin.flush()

    def heard(self) -> str:
        assert self._server.stdout is not None
        line = self._server.stdout.readline()
        assert line, f"the server ended with {self._server.wait()}"
        return line

    def close(self) -> None:
        """End the server."""
        self._server.kill()
        self._server.communicate()


class Forked:
    """One child.  returncode: as of a Popen, once it was waited for."""

    def __init__(self, pid: int, server: ForkServer) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._server = server

    def poll(self) -> int | None:
        """None while it runs: one that has ended is a zombie until the server waits for it."""
        state = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]
        return self.wait() if state == "Z" else None

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        if self.returncode is None:
            self._server.say("wait")
            self.returncode = int(self._server.heard())
        return self.returncode


def say(number: int) -> None:
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()


def serve(work: Callable[[], Any]) -> None:
    """Fork a child for each line that names its files, and say its number; end when nobody asks any more."""
    for line in sys.stdin:
        told, complaint = line.split()
        child = os.fork()
        if not child:
            for number, name in ((1, told), (2, complaint)):
                os.dup2(os.open(name, os.O_WRONLY), number)
            work()
            os._exit(0)
        say(child)
        assert sys.stdin.readline() == "wait\n"
        say(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
