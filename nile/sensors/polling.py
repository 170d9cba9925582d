"""Sources that are polled, thousands on one thread, so that none of them delays another.

The thread takes them in turn, by when each is due: round robin among those that are.  Those that have a descriptor are
read when a selector says so.  A source whose call takes longer than 50 ms keeps the thread that is in it, and a new
thread goes on with the others; it is polled with them again once it is quick.  Source: STEAM, section 5 and Figure 4,
which leaves open how to be told of what is ready.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from nile.base.interrupts import INTERRUPTS
from nile.sensors.due import Due
from nile.sensors.port import PAUSE, Port

__all__ = ["Poller", "Work"]

_SLOW = 0.05
"""Seconds of a call from which on the thread that is in it is left to its source."""
_QUICK, _QUICK_CALLS = 0.005, 20
"""So many calls in a row below so many seconds, and a source is polled with others again."""
_GATHER = 0.01
"""Seconds for which values are gathered before they are handed on."""
_MOST = 4096
"""Calls between two such times."""
NAME = "nile sensors"
"""How the names of all threads begin."""


class Work(Protocol):
    """What the thread that polls does beside."""

    def give(self, port: Port, found: tuple[Any, ...] | None) -> bool:
        """Take what a source gave, from any thread (None: it gives no more); whether nothing else was waiting."""

    def waiting(self) -> int:
        """How much has been given and not been gathered."""

    def look(self) -> bool:
        """Whether a queue is full, so that nothing should be read; on the thread that polls."""

    def full(self) -> bool:
        """Whether one was at the last look."""

    def gather(self) -> None:
        """Hand on what was given."""

    def over(self) -> bool:
        """Whether there is nothing more to do at all."""


@dataclass(slots=True)
class _Turn:
    """A thread that polls.  port, since: the source it is in, and from when on; over: another thread polls now.

    The thread clears `port` and then reads `over`; who watches sets `over`, under `lock`, and then looks whether `port`
    is still the same.  So one of them sees the other, and a thread that sees nothing needs no lock.
    """

    port: Port | None = None
    since: float = 0.0
    over: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)


class Poller:
    """Threads that begin with the first note and end once there is nothing more to do.

    What is noted runs on the thread that polls: it alone may call `begin` and `leave`.
    """

    def __init__(self, work: Work) -> None:
        self._work = work
        self._notes: deque[Callable[[], object]] = deque()
        self._due = Due()
        self._alone: dict[Port, None] = {}
        self._leaving: dict[Port, None] = {}
        self._starting = threading.Lock()
        self._turn: _Turn | None = None
        self._gathered = 0.0
        self._selector: selectors.BaseSelector | None = None
        self._bell: tuple[socket.socket, socket.socket] | None = None
        self._asleep = False

    @property
    def running(self) -> bool:
        """Whether there are threads."""
        return self._turn is not None

    def note(self, what: Callable[[], object]) -> None:
        """Have something done by the thread that polls, soon, if there is one."""
        self._notes.append(what)
        self.ring()

    def ring(self) -> None:
        """Wake the thread that polls, if it sleeps."""
        if self._asleep and (bell := self._bell) is not None:
            with contextlib.suppress(OSError):
                bell[1].send(b"!")

    def start(self) -> None:
        """Make threads, where there are none."""
        with INTERRUPTS, self._starting:  # a turn without its thread would have all who come wait forever
            if self._turn is not None:
                return
            self._selector = selectors.DefaultSelector()
            self._bell = socket.socketpair()
            for end in self._bell:
                end.setblocking(False)
            self._selector.register(self._bell[0], selectors.EVENT_READ, None)
            self._turn = _Turn()
            _thread(self._poll, self._turn)
            _thread(self._watch)

    def begin(self, port: Port) -> None:
        """Read a source from now on."""
        self._due.put(port, 0.0)

    def leave(self, port: Port) -> None:
        """Close a source that is `gone`, as soon as the call that it is in is over."""
        self.leaving(port)
        if port not in self._alone:
            self._due.at_once(port)

    def leaving(self, port: Port) -> None:
        """Do not end before a source is closed, unless it hangs."""
        self._leaving[port] = None

    def _poll(self, turn: _Turn) -> None:
        due, work = self._due, self._work
        while True:
            while self._notes:
                self._notes.popleft()()
            if work.over() and self._ended():
                return
            now, calls, paused = time.monotonic(), 0, work.look()
            while calls < _MOST and not self._notes and (entry := due.first()) is not None:
                port = entry[2]
                if paused and not port.gone.is_set():
                    break
                if entry[0] > now:
                    now = time.monotonic()
                    if entry[0] > now or now - self._gathered > _GATHER:
                        break
                due.take(entry)
                if port.closed.is_set() or (self._alone and port in self._alone):
                    continue
                served = port.turn
                turn.since, turn.port = now, port
                goes_on = self._call(port)
                turn.port = None
                if turn.over and self._lost(turn):
                    with port.lock:
                        goes_on = goes_on and port.turn == served
                        if port.turn == served:
                            port.asked = 0.0
                    self._serve_alone(port, goes_on)
                    return
                if goes_on and not (port.ready and self._is_ready_later(port)):
                    due.put(port, port.every)
                calls += 1
                now = max(now, port.called)
            now = time.monotonic()
            waiting = work.waiting()
            if waiting >= _MOST or (waiting and now - self._gathered >= _GATHER):
                self._gathered = now
                work.gather()
            self._sleep(now, paused)

    @staticmethod
    def _lost(turn: _Turn) -> bool:
        """Whether another thread polls now, once who watches has made up its mind."""
        with turn.lock:
            return turn.over

    def _sleep(self, now: float, paused: bool) -> None:
        """Until a source is due or ready, or something is to be done."""
        assert self._selector is not None
        assert self._bell is not None
        self._asleep = True  # from here on others ring
        first = self._due.first()
        until = now + PAUSE if paused else now + 1.0 if first is None else first[0]
        if self._work.waiting():
            until = min(until, self._gathered + _GATHER)
        seconds = 0.0 if self._notes or until <= now else min(max(until - now, 0.002), 1.0)
        for key, _ in self._selector.select(seconds):
            if key.data is None:
                with contextlib.suppress(OSError):
                    self._bell[0].recv(4096)
            else:
                self._unregister(key.fileobj)  # until it has been read
                self._due.at_once(key.data)
        self._asleep = False

    def _is_ready_later(self, port: Port) -> bool:
        """Whether a selector will say when to read it again."""
        assert self._selector is not None
        descriptor = port.descriptor()
        if descriptor is not None:
            with contextlib.suppress(OSError, ValueError, KeyError):  # a file is always ready: it is polled
                self._selector.register(descriptor, selectors.EVENT_READ, port)
                return True
        port.ready = False
        return False

    def _unregister(self, descriptor: Any) -> None:
        if self._selector is not None:
            with contextlib.suppress(KeyError, ValueError, OSError):
                self._selector.unregister(descriptor)

    def _ended(self) -> bool:
        """Let all go, unless there is something to do again; whether that was done."""
        if any(not port.closed.is_set() and port not in self._alone for port in self._leaving):
            return False
        with self._starting:
            if self._notes:
                return False
            assert self._selector is not None
            assert self._bell is not None
            self._turn, selector, bell, self._bell = None, self._selector, self._bell, None
            self._due.clear()
            self._leaving.clear()
            selector.close()
            for end in bell:
                end.close()
            return True

    def _watch(self) -> None:
        """Look after threads that are in a call for too long."""
        while (turn := self._turn) is not None:
            time.sleep(_SLOW / 2)
            now = time.monotonic()
            with turn.lock:
                stuck, since = turn.port, turn.since
                if stuck is not None and (now - since <= _SLOW or self._turn is not turn):
                    stuck = None
                if stuck is not None:
                    turn.over = True
                    if turn.port is not stuck or turn.since != since:  # it came back meanwhile
                        turn.over, stuck = False, None
                if stuck is not None:
                    stuck.asked = since
                    self._alone[stuck] = None
                    self._turn = following = _Turn()
            if stuck is not None:
                _thread(self._poll, following)
            for port in list(self._alone):
                with port.lock:
                    late = port.hangs(now)
                    ended = late and port.abandon(now)
                if late:
                    self.note(partial(self._begun_anew, port, ended))

    def _call(self, port: Port) -> bool:
        """One call of a source, by the thread that serves it; whether that thread is to call it again."""
        if port.gone.is_set():
            self._over(port)
            return False
        turn, instance = port.turn, port.instance
        if instance is None:
            with contextlib.suppress(BaseException):
                instance = port.made()
        found = port.step()
        if not port.asked and port.turn == turn:
            return self._took(port, found)
        with port.lock:
            mine = port.turn == turn
            if mine:
                port.asked = 0.0
        if mine:
            return self._took(port, found)
        if instance is not None:  # it was given up, and has been begun anew
            instance.end()
        port.stuck -= 1
        return False

    def _took(self, port: Port, found: Any) -> bool:
        now = port.called = time.monotonic()
        ended = port.follow(found, now)
        if port.state == "open":
            if isinstance(found, tuple) and self._work.give(port, found):
                self.ring()
            return True
        self._unready(port)
        self._end(port)
        if ended:
            self._work.give(port, None)
            self.ring()
            port.closed.set()
        return not ended

    def _unready(self, port: Port) -> None:
        if port.ready:
            self._unregister(port.descriptor())
            port.ready = False

    def _end(self, port: Port) -> None:
        instance = port.let_go()
        error = None if instance is None else instance.end()
        if error is not None:
            port.note_closing(error)

    def _over(self, port: Port) -> None:
        """Nobody reads it any more: close it."""
        self._unready(port)
        self._end(port)
        if port.live:
            port.state = "closed"
        port.closed.set()

    def _serve_alone(self, port: Port, goes_on: bool) -> None:
        """On a thread that is left to a source: call it until it is quick again, or over."""
        quick = 0
        while goes_on:
            while (wait := port.due - time.monotonic()) > 0 or self._work.full():
                if port.gone.wait(min(max(wait, PAUSE), 1.0)):
                    break
            if quick >= _QUICK_CALLS:
                self.note(partial(self._polled, port))
                return
            port.asked = asked = time.monotonic()
            turn = port.turn
            goes_on = self._call(port)
            if port.turn != turn:
                return  # another thread serves it
            quick = quick + 1 if time.monotonic() - asked < _QUICK else 0
        if not port.live or port.closed.is_set():
            self.note(lambda: self._alone.pop(port, None))

    def _polled(self, port: Port) -> None:
        """Take a source in turn with others."""
        self._alone.pop(port, None)
        if not port.closed.is_set():
            self.begin(port)

    def _begun_anew(self, port: Port, ended: bool) -> None:
        """A source whose call took too long: it is begun anew with the others, or has failed."""
        self._polled(port)
        if ended:
            self._work.give(port, None)
            port.closed.set()


def _thread(what: Callable[..., None], *arguments: Any) -> None:
    threading.Thread(target=what, args=arguments, name=f"{NAME} {what.__name__}", daemon=True).start()
