"""Tuples of a stream that are taken back: each was there from its own time on, and is not from an instant on."""

from __future__ import annotations

from collections import deque
from typing import Any, ClassVar

import numpy as np

from nile.exact.plan.algebra import GraphJoin, Join, OnClose, Opened, Plan, Rows, Sample, Scan, ToStream, walk
from nile.exact.state.arrow import Array
from nile.exact.state.expire import joined, uncancelled
from nile.exact.state.held import Held, State

__all__ = ["TakenBack", "takes_nothing_back", "without"]


def takes_nothing_back(plan: Plan, scheduling: str, emit: str) -> str | None:
    """What of a pipeline has no way to take tuples back, in words; None: nothing."""
    if emit not in ("changes", "snapshot") and not isinstance(plan, OnClose):
        return "appended rows only, which cannot be retracted (say emit='changes')"
    if scheduling != "nta":
        return f"scheduling {scheduling}, under which what leaves early is not told (leave it out)"
    for node in walk(plan):
        match node:
            case Scan(window=Rows()):
                return "a window of rows, which has evicted those that would take their place"
            case GraphJoin():
                return "windows between pairs of streams, whose combinations are not kept tuple by tuple"
            case Join(promises=promises) if promises:
                return "a join by constraints on its streams, which forgets tuples that find no partner any more"
            case Opened():
                return "sessions of all that comes, of which only the last tuples' times are kept (say WINDOW)"
            case ToStream() | Sample():
                return "a stream made of a query, which has been told"
            case _:
                pass
    return None


def without(ts: Array, rows: Any, gone_ts: Array, gone: Any) -> Array:
    """Which rows (bool [n]) are left when one equal row of the same time goes for each of `gone`."""
    sign = np.append(np.ones(ts.shape[0], np.int8), np.full(gone_ts.shape[0], -1, np.int8))
    stay = uncancelled(np.concatenate([ts, gone_ts]), sign, joined([rows, gone], rows.schema))
    left: Array = stay[: ts.shape[0]]
    return left


class TakenBack:
    """Tuples of a scan, after the chain above it, that are taken back and not yet worked on."""

    HELD: ClassVar = ("waiting",)
    DERIVED: ClassVar = ("schema",)

    def __init__(self, schema: Any) -> None:
        self.schema = schema
        self.waiting: deque[tuple[Array, Array, Any]] = deque()

    def add(self, at: int, ts: Array, rows: Any) -> None:
        """Tuples of times `ts` that go at the instant `at`, which is none before what was added."""
        if ts.shape[0]:
            self.waiting.append((np.full(ts.shape[0], at), ts, rows))

    def first(self, to: int) -> int | None:
        """The first instant at which tuples go, if it is not after `to`."""
        return int(self.waiting[0][0][0]) if self.waiting and self.waiting[0][0][0] <= to else None

    def due(self, to: int) -> tuple[Array, Array, Any]:
        """Take out those that go up to `to`: (instants int64 [n], their times int64 [n], rows)."""
        parts = [(np.zeros(0, np.int64), np.zeros(0, np.int64), joined([], self.schema))]
        while self.waiting and self.waiting[0][0][0] <= to:
            at, ts, rows = self.waiting.popleft()
            end = int(np.searchsorted(at, to, side="right"))
            parts.append((at[:end], ts[:end], rows.slice(0, end)))
            if end < at.shape[0]:  # only after `restore`, which puts several instants together
                self.waiting.appendleft((at[end:], ts[end:], rows.slice(end)))
                break
        at, ts = (np.concatenate([part[k] for part in parts]) for k in (0, 1))
        return at, ts, joined([part[2] for part in parts], self.schema)

    def capture(self) -> State:
        """Those that wait; nothing of them where none does, as in states of before there were any."""
        if not self.waiting:
            return {}
        at, ts = (np.concatenate([part[k] for part in self.waiting]) for k in (0, 1))
        return {"back": {"at": at, "ts": ts, "rows": joined([part[2] for part in self.waiting], self.schema)}}

    def restore(self, held: Held) -> None:
        """Put captured tuples where none wait.  Raises EnvelopeError."""
        if not held.has("back"):
            return
        part = held.part("back")
        at = part.rising("at")
        ts = part.array("ts", "int64", at.shape)
        self.waiting = deque([(at, ts, part.rows("rows", self.schema, at.shape[0]))])
        part.end()

    @property
    def memory(self) -> int:
        return int(sum(at.nbytes + ts.nbytes + rows.nbytes for at, ts, rows in self.waiting))
