"""Continuous queries over windowed streams and stored relations, right at every instant.

A plan (`nile.exact.algebra`) becomes a pipeline; tuples are pushed, signed changes come out.  At every instant T the
changes so far add up to the snapshot query over what the windows hold at T.
Source: negative tuples, Definition 1 and sections 3 and 4.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from nile.exact.algebra import Plan, Scan, walk
from nile.exact.pipeline_arrow import Array, pa
from nile.exact.pipeline_check import check
from nile.exact.pipeline_plain import batch, instants, key, rows_of, snapshot
from summaries.errors import ConfigError, TimestampOrderError, UnknownStream

__all__ = ["Changes", "Emit", "Pipeline", "Scheduling", "check"]

Scheduling = Literal["nta", "tpa", "ita"]
Emit = Literal["append", "changes", "snapshot"]


@dataclass(frozen=True)
class Changes:
    """What changed: ts int64 [n] ns, not falling; sign int8 [n], +1 comes and -1 goes; rows: RecordBatch [n]."""

    ts: Array
    sign: Array
    rows: Any

    def __len__(self) -> int:
        return int(self.ts.shape[0])


class Pipeline:
    """A plan at work.

    scheduling: `nta`, `tpa` or `ita`; emit: `append` (every row that ever came), `changes` (signed) or `snapshot`
    (the state at the end, once).  Raises ConfigError and KeyTypeError for what is wrong with the plan.
    """

    def __init__(self, plan: Plan, scheduling: Scheduling = "nta", emit: Emit = "changes") -> None:
        check(plan)
        for where, given, known in (("scheduling", scheduling, Scheduling), ("emit", emit, Emit)):
            if given not in get_args(known):
                raise ConfigError(f"{where}: needed one of {', '.join(get_args(known))}; got {given!r}; take one")
        self.plan = plan
        self.emit = emit
        self.scheduling = scheduling
        self._tuples: dict[str, list[tuple[int, Any]]] = {s.name: [] for s in walk(plan) if isinstance(s, Scan)}
        self._schemas = {s.name: s.schema for s in walk(plan) if isinstance(s, Scan)}
        self._now = dict.fromkeys(self._tuples, np.iinfo(np.int64).min)
        self._done: int | None = None
        self._state: Counter[Any] = Counter()
        self._rows: dict[Any, Any] = {}

    @property
    def schema(self) -> Any:
        """The columns of the output."""
        return self.plan.schema

    def push(self, name: str, ts: Array, rows: Any) -> list[Changes]:
        """Tuples of one stream in the order of their times; returns what is certain by now.

        Nothing of an instant is emitted before every other stream has passed it, or `advance` says so.
        Raises UnknownStream, TimestampOrderError.
        """
        if name not in self._tuples:
            raise UnknownStream(f"push: needed one of {', '.join(self._tuples)}; got {name!r}; name one of these")
        times = np.asarray(ts, np.int64)
        if times.shape[0]:
            if (np.diff(times) < 0).any() or times[0] < self._now[name]:
                raise TimestampOrderError(f"stream {name!r}: needed times that do not fall; sort it, or set lateness=")
            held = rows.select(self._schemas[name].names)
            self._tuples[name] += zip(times.tolist(), rows_of(held), strict=True)
            self._now[name] = int(times[-1])
        return self._emit(min(self._now.values()) - 1)

    def advance(self, now: int) -> list[Changes]:
        """No tuple of time `now` or before will come any more; returns what follows of that."""
        for name in self._now:
            self._now[name] = max(self._now[name], now + 1)
        return self._emit(now)

    def finish(self, at: int | None = None) -> list[Changes]:
        """No tuple will come any more: the rest of the changes, up to `at` (None: the last tuple's time)."""
        ends = [held[-1][0] for held in self._tuples.values() if held]
        last = max([*ends, *([] if at is None else [at])], default=0)
        out = self.advance(last) if ends or at is not None else self._emit(last, [last])
        if self.emit == "snapshot":
            table = self.snapshot().combine_chunks()
            whole = pa.RecordBatch.from_arrays(
                [c.chunk(0) if c.num_chunks else pa.array([], c.type) for c in table.columns], schema=self.schema
            )
            n = whole.num_rows
            return [Changes(np.full(n, last, np.int64), np.ones(n, np.int8), whole)]
        return out

    def run(self, sources: Mapping[str, Iterable[tuple[Array, Any]]], at: int | None = None) -> Iterator[Changes]:
        """Push what iterators of (ts, rows) give, the stream that lies furthest back first, and finish."""
        ahead = {name: iter(source) for name, source in sources.items()}
        while ahead:
            name = min(ahead, key=lambda each: self._now[each])
            try:
                ts, rows = next(ahead[name])
            except StopIteration:
                del ahead[name]
                continue
            yield from self.push(name, ts, rows)
        yield from self.finish(at)

    def snapshot(self) -> Any:
        """The rows that hold now: a Table."""
        rows = [self._rows[each] for each, n in self._state.items() for _ in range(n)]
        return pa.Table.from_batches([batch(rows, self.schema)], self.schema)

    @property
    def memory(self) -> int:
        """Bytes of state."""
        return sum(len(held) for held in self._tuples.values()) * 64

    @property
    def costs(self) -> dict[str, int]:
        """How much was done."""
        return {"tuples": sum(len(held) for held in self._tuples.values())}

    def _emit(self, until: int, times: list[int] | None = None) -> list[Changes]:
        times = instants(self.plan, self._tuples) if times is None else times
        ready = [at for at in times if (self._done is None or at > self._done) and at <= until]
        out: list[tuple[int, int, Any]] = []
        for at in ready:
            rows = snapshot(self.plan, self._tuples, at)
            state = Counter(map(key, rows))
            self._rows.update((key(row), row) for row in rows)
            for gone, n in (self._state - state).items():
                out += [(at, -1, self._rows[gone])] * n
            for new, n in (state - self._state).items():
                out += [(at, 1, self._rows[new])] * n
            self._state, self._done = state, at
        if self.emit == "snapshot" or not out:
            return []
        out = [each for each in out if self.emit == "changes" or each[1] > 0]
        signs = np.array([each[1] for each in out], np.int8)
        ts = np.array([each[0] for each in out], np.int64)
        return [Changes(ts, signs, batch([each[2] for each in out], self.schema))]
