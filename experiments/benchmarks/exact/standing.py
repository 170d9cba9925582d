"""What standing queries cost as their streams grow: outer joins, top k and OVER; and tuples in random order."""

from __future__ import annotations

import time
from statistics import median
from typing import Any

import numpy as np

import nile
from nile.base.machine import memory_held
from nile.experiments.benchmarks.harness import Measure, Result, benchmark
from nile.summaries.heavy import pa

__all__ = ["disorder_curve", "standing_curve"]

Array = np.ndarray[Any, Any]
TITLE = "cost a tuple and state of outer joins, top k and OVER as streams grow"
WINDOW = 10_000  # instants, a tuple of each stream in each
KEYS = 9_973
BATCH = 5_000  # tuples of each stream in a push
LENGTHS = (100_000, 1_000_000, 10_000_000)  # tuples of all streams so far
BRIEF = LENGTHS[:2]
LAST = 16  # pushes that are measured up to each length
MOST = 1.15
QUERIES = {
    "left outer join": ("ab", "SELECT a.v, b.v AS w FROM a LEFT JOIN b ON a.k = b.k"),
    "full outer join": ("ab", "SELECT a.v, b.v AS w FROM a FULL JOIN b ON a.k = b.k"),
    "anti join": ("ab", "SELECT a.v FROM a ANTI JOIN b ON a.k = b.k"),
    "top 10": ("a", "SELECT k, v FROM a ORDER BY v DESC, ts LIMIT 10"),
    "top 1 of each key": ("a", "SELECT t.k, t.v FROM (SELECT DISTINCT ON (k) k, v FROM a ORDER BY k, v DESC) AS t"),
    "lag over a partition": ("a", "SELECT k, v, lag(v) OVER (PARTITION BY k ORDER BY ts) AS before FROM a"),
    "running sum over a partition": ("a", "SELECT k, sum(v) OVER (PARTITION BY k ORDER BY ts) AS total FROM a"),
}

DISORDER_TITLE = "cost a tuple and memory of windows whose tuples come in random order within the lateness"
LATENESS = 4_000  # instants: of as many the order is random, and pushes begin and end amid them
LONG = (100_000, 1_000_000, 10_000_000, 100_000_000)
BOUNDED = {
    "selection": ("a", "SELECT k, v FROM a WHERE v < 32768", "append"),
    "sum and count": ("a", "SELECT sum(v) AS total, count(*) AS n FROM a WHERE v < 49152", "changes"),
    "group-by": ("a", "SELECT k, sum(v) AS total FROM a GROUP BY k", "changes"),
    "join": ("ab", "SELECT a.v, b.v AS w FROM a, b WHERE a.k = b.k", "append"),
    "join and group-by": ("ab", "SELECT a.k, count(*) AS n FROM a, b WHERE a.k = b.k GROUP BY a.k", "changes"),
    "left outer join": ("ab", QUERIES["left outer join"][1], "changes"),
}
HELD = 1.1


def _rows(begin: int, count: int, lateness: int | None = None) -> dict[str, Array]:
    """`count` tuples from instant `begin` on; keys and values are hashed from their instants."""
    ts = np.arange(begin, begin + count)
    if lateness is not None:
        first, last = begin // lateness, (begin + count - 1) // lateness
        blocks = [np.random.default_rng(block).permutation(lateness) + block * lateness
                  for block in range(first, last + 1)]  # fmt: skip
        ts = np.concatenate(blocks)[begin - first * lateness :][:count]
    return {"ts": ts, "k": ts * 2_654_435_761 % KEYS, "v": ts * 40_503 % 65_536}


class _Fed:
    """A query of a database of its own, fed push by push."""

    def __init__(self, streams: str, query: str, emit: str = "changes", lateness: int | None = None) -> None:
        """lateness: instants within which the order is random; None: none is."""
        schema = pa.schema([("ts", pa.int64()), ("k", pa.int64()), ("v", pa.int64())])
        self._db = nile.connect()
        for name in streams:
            self._db.stream(name, schema, time="ts", keep="1 s", lateness=lateness)
        self.standing = self._db.subscribe(f"{query} WINDOW {WINDOW}", emit=emit)
        self._streams, self._lateness = streams, lateness
        self.each = BATCH * len(streams)
        """Tuples of a push of all streams."""
        self._begin = 0

    def push(self) -> float:
        """CPU ns a tuple of the next push, reading of what it leads to included."""
        rows = [_rows(self._begin, BATCH, self._lateness) for _ in self._streams]
        self._begin += BATCH
        started = time.process_time_ns()
        for name, each in zip(self._streams, rows, strict=True):
            self._db.push(name, each)
        self.standing.poll()
        return (time.process_time_ns() - started) / self.each

    def up_to(self, tuples: int) -> None:
        """Push until so many have come, all streams together."""
        while self._begin * len(self._streams) < tuples:
            self.push()

    def close(self) -> None:
        """The end of its database."""
        self._db.close()


def _costs(lengths: tuple[int, ...], *query: Any) -> list[dict[str, float]]:
    """At each length: ns a tuple over the last pushes, times that of a young query that takes turns with it, bytes that
    it holds, and those of the process."""
    found, old = [], _Fed(*query)
    for length in lengths:
        old.up_to(length - LAST * old.each)
        resident = memory_held("RssAnon") or 0
        young = _Fed(*query)
        young.up_to(lengths[0] - LAST * old.each)
        took = [(old.push(), young.push()) for _ in range(LAST)]
        young.close()
        spent, beside = (median(each) for each in zip(*took, strict=True))
        found.append({"tuples": length, "ns_a_tuple": spent, "times": spent / beside, "state": old.standing.memory,
                      "resident": resident})  # fmt: skip
    old.close()
    return found


def _measures(kind: str, found: list[dict[str, float]]) -> list[Measure]:
    first, last = found[0], found[-1]
    beside = f"at {last['tuples']:,} tuples beside {first['tuples']:,}"
    return [
        Measure(f"{kind}: cost a tuple {beside}", last["times"], "times", MOST, most=True,
                about=f"process CPU, medians of {LAST} pushes of {BATCH:,} tuples a stream in turn"),
        Measure(f"{kind}: state {beside}", last["state"] / first["state"], "times", MOST, most=True),
    ]  # fmt: skip


def _figures(kind: str, found: list[dict[str, float]]) -> dict[str, object]:
    return {
        f"{kind}, after {each['tuples']:,} tuples": f"{each['ns_a_tuple']:,.0f} ns a tuple, {each['state']:,} bytes of "
        f"state, {each['resident'] / 1e6:,.0f} MB of the process"
        for each in found
    }


def measure(lengths: tuple[int, ...] = LENGTHS) -> Result:
    """Each tuple comes into its window and leaves it; every change is read.  Both must follow the window alone."""
    measures: list[Measure] = []
    figures: dict[str, object] = {}
    for title, query in QUERIES.items():
        found = _costs(lengths, *query)
        figures |= _figures(title, found)
        measures += _measures(title, found)
    return Result(
        "standing-curve", TITLE, "tuples", lengths[-1], (), tuple(measures), figures=figures, brief=lengths == BRIEF
    )


@benchmark("standing-curve", TITLE, brief=lambda: measure(BRIEF))
def standing_curve() -> Result:
    """10^5 to 10^7 tuples through each query: about ten minutes."""
    return measure()


def measure_disorder(lengths: tuple[int, ...] = LONG) -> Result:
    """Tuples in order and in random order in turn: cost and memory must follow the window and the lateness alone."""
    measures: list[Measure] = []
    figures: dict[str, object] = {}
    rows: list[dict[str, Any]] = []
    for title, query in BOUNDED.items():
        for lateness in (None, LATENESS):
            kind = f"{title}, {'in order' if lateness is None else 'random order'}"
            found = _costs(lengths, *query, lateness)
            figures |= _figures(kind, found)
            grown = found[-1]["resident"] / found[0]["resident"] if found[0]["resident"] else 1.0
            measures += [
                *_measures(kind, found),
                Measure(f"{kind}: memory of the process", grown, "times", HELD, most=True),
            ]
            rows += [{"query": title, "lateness": lateness, **each} for each in found]
    return Result(
        "disorder-curve", DISORDER_TITLE, "tuples", lengths[-1], (), tuple(measures), figures=figures,
        rows=tuple(rows), brief=lengths != LONG,
    )  # fmt: skip


@benchmark("disorder-curve", DISORDER_TITLE, brief=lambda: measure_disorder(LONG[:-1]))
def disorder_curve() -> Result:
    """10^5 to 10^8 tuples through each query, in order and in random order: about an hour."""
    return measure_disorder()
