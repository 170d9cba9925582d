"""Processes of attempts that begin warm: forked from one that has loaded what they need, and has used it once.

To start a process, to import Nile and to load its kernels takes longer than what these attempts look at.  A forked one
is a process like others: signals, standard streams, exit statuses and what runs at its end are its own.
Run by itself (python -m nile.experiments.faults.changes.forks NUMBER) it is the process that they are forked from, with
a socket of that number.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from importlib import import_module
from typing import IO, Any, cast

__all__ = ["Forked", "main", "spent"]

_LONGEST = 1 << 16  # bytes of a message
_STEP = 0.005  # s from one look at whether a process has ended to the next


class Forked:
    """A process in which a program runs.

    program: the function that is called with the arguments, "module:name"; warm: one that is called once, before any
    process is forked, and leaves no thread behind; errors: where standard error goes; stdout: what it prints;
    returncode: as of subprocess, None while it runs.
    """

    def __init__(self, program: str, warm: str, arguments: list[str], errors: IO[str]) -> None:
        self.returncode: int | None = None
        begin, end = os.pipe()
        try:
            order = {"program": program, "warm": warm, "arguments": arguments}
            self.pid = int(_origin().asked(order, [end, errors.fileno()])["pid"])
        finally:
            os.close(end)
        self.stdout = os.fdopen(begin, encoding="utf-8")

    def send_signal(self, number: int) -> None:
        """Nothing happens to one that has ended."""
        if self.returncode is None:
            os.kill(self.pid, number)  # it keeps its number until it has been waited for

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)

    def wait(self, seconds: float = 60.0) -> int:
        """Its status, once it has ended.  Raises TimeoutError."""
        until = time.monotonic() + seconds
        while self.returncode is None:
            told = _origin().asked({"pid": self.pid})
            if told["status"] is None:
                if time.monotonic() > until:
                    raise TimeoutError(f"process {self.pid} has not ended after {seconds:.0f} s")
                time.sleep(_STEP)
                continue
            self.returncode = int(told["status"])
            self.stdout.close()
        return self.returncode


class _Origin:
    """The process that others are forked from.  It ends, and they with it, when this one does."""

    def __init__(self) -> None:
        self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = threading.Lock()
        self.spent = 0.0
        with other:
            subprocess.Popen(
                [sys.executable, "-m", __spec__.name, str(other.fileno())],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=[other.fileno()],
            )  # fmt: skip

    def asked(self, order: dict[str, Any], files: list[int] | None = None) -> dict[str, Any]:
        """What it answers."""
        with self._lock:
            socket.send_fds(self._socket, [json.dumps(order).encode()], files or [])
            told: dict[str, Any] = json.loads(self._socket.recv(_LONGEST))
            self.spent += told["seconds"]
        return told


@functools.cache
def _origin() -> _Origin:
    return _Origin()


def spent() -> float:
    """CPU seconds of forked processes that have been waited for, and of what they are forked from."""
    return _origin().spent if _origin.cache_info().currsize else 0.0


@functools.cache
def _named(place: str) -> Callable[..., object]:
    """A function, "module:name"."""
    module, _, name = place.partition(":")
    return cast(Callable[..., object], getattr(import_module(module), name))


@functools.cache
def _warmed(place: str) -> None:
    _named(place)()


def main(number: int) -> Callable[[], object]:
    """Fork a process for each order; in such a process, what it is to run, in the first one nothing to do."""
    orders, running, seen = socket.socket(fileno=number), set[int](), 0.0
    while True:
        data, files, *_ = socket.recv_fds(orders, _LONGEST, 2)
        if not data:
            break
        order = json.loads(data)
        told: dict[str, Any] = {"pid": order.get("pid"), "status": None, "seconds": 0.0}
        if "program" in order:
            _warmed(order["warm"])
            program = _named(order["program"])
            told["pid"] = os.fork()
            if not told["pid"]:
                orders.close()
                for at, file in enumerate(files, 1):
                    os.dup2(file, at)
                    os.close(file)
                # Those that there were know what they wrote to before.
                sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", 1, closefd=False)
                return functools.partial(program, order["arguments"])
            running.add(told["pid"])
            for file in files:
                os.close(file)
        else:
            ended, status, used = os.wait4(order["pid"], os.WNOHANG)
            if ended:
                running.discard(ended)
                told["status"] = os.waitstatus_to_exitcode(status)
                told["seconds"] = used.ru_utime + used.ru_stime
        told["seconds"] += time.process_time() - seen
        seen = time.process_time()
        orders.send(json.dumps(told).encode())
    for pid in running:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return bool


if __name__ == "__main__":
    main(int(sys.argv[1]))()
