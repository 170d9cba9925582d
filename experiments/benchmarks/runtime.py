"""What many standing queries over few streams cost beside one: equal ones, dashboards over one join, selections."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

import numpy as np

from nile.experiments.benchmarks.bursts import through_bursts
from nile.experiments.benchmarks.dealt import dealt_out
from nile.experiments.benchmarks.harness import Measure, Result, benchmark
from nile.experiments.benchmarks.precision import foretold
from nile.runtime.charts import Step
from nile.runtime.clairvoyant import least_sizes
from nile.runtime.scheduling import SCHEDULERS, Arrival, simulate
from nile.summaries.heavy import pa
from nile.summaries.lazy import lazy

if TYPE_CHECKING:
    import nile
else:
    nile = lazy("nile")

__all__ = ["Many", "beside_alone", "many_queries"]

ROWS = 10_000
PUSHES = 40
ROUNDS = 5
EQUAL, DASHBOARDS, SELECTIONS = 16, 100, 1_000
STATE_BAR, CPU_BAR, PUSH_BAR_MS = 1.2, 1.5, 2.0
STATE_FALLS = 100.0
THREADS_BAR = 1.7
_FILL = 6
"""Pushes to each stream until windows of a second are full."""
_ORDERS = 1_000
_SCHEMA = [("t", pa.timestamp("ns")), ("item", pa.int64()), ("price", pa.float64())]
_JOINED = (
    "SELECT a.item, count(*) AS n, sum(b.price) AS total FROM a, b WHERE a.item = b.item GROUP BY a.item{} WINDOW 1"
)

_TAILS = (
    ("a.item", "sum(b.price) AS total"),
    ("floor(a.price)", "count(*) AS n, sum(b.price) AS total"),
    ("floor(b.price)", "sum(a.price) AS total"),
)
"""(what one join is grouped by, what is told of it)."""
_PAIRS = "SELECT a.t, b.t AS u, a.item, a.price, b.price AS q FROM a, b WHERE a.item = b.item WINDOW 1"
_SELECTED = "SELECT a.t, b.t AS u, a.item, a.price FROM a, b WHERE a.item = b.item AND a.price + b.price > 195 WINDOW 1"


class Many:
    """A database of live streams and some standing queries; pushes go to the streams in turn."""

    def __init__(
        self, queries: Sequence[str], seed: int = 5, threads: int | None = 1, streams: str = "ab", rows: int = ROWS,
        **how: Any,
    ) -> None:  # fmt: skip
        self.db = nile.connect(threads=threads)
        for name in streams:
            self.db.stream(name, _SCHEMA, time="t")
        self.queries = [self.db.subscribe(text, **how) for text in queries]
        self.streams = streams
        self._rows = rows
        self._draw = np.random.Generator(np.random.PCG64(seed))
        self._number = 0

    def made(self) -> tuple[str, Any]:
        """What is pushed next: tuples, 20 us apart, of 2,000 items."""
        turn, which = divmod(self._number, len(self.streams))
        self._number += 1
        n = self._rows
        at = (np.arange(n) + turn * n) * 20_000
        items = pa.array(self._draw.integers(0, 2_000, n))
        rows = [pa.array(at, pa.timestamp("ns")), items, pa.array(self._draw.random(n) * 100)]
        return self.streams[which], pa.RecordBatch.from_arrays(rows, names=["t", "item", "price"])

    def read(self) -> int:
        """Read what all of them have found; rows."""
        return sum(batch.num_rows for query in self.queries for batch in query.poll())

    def cpu(self, pushes: int, *, read: bool = True) -> float:
        """CPU seconds of a push, what it finds read or not."""
        spent = 0.0
        for _ in range(pushes):
            made = self.made()
            spent -= time.process_time()
            self.db.push(*made)
            if read:
                self.read()
            spent += time.process_time()
        return spent / pushes

    def found(self, pushes: int) -> list[Any]:
        """What each query tells of some pushes: tables."""
        told: list[list[Any]] = [[] for _ in self.queries]
        for _ in range(pushes):
            self.db.push(*self.made())
            for batches, query in zip(told, self.queries, strict=True):
                batches += query.poll()
        return [pa.Table.from_batches(batches) for batches in told]

    @property
    def state(self) -> int:
        """Bytes of state, each plan's once."""
        told = self.db.sql("SELECT sum(memory) AS bytes FROM nile_synopses WHERE kind = 'state'").to_arrow().to_pylist()
        return int(told[0]["bytes"])


def _beside_one(name: str, queries: Sequence[str], pushes: int, rounds: int, **how: Any) -> list[Measure]:
    """State and CPU of many beside the first of them alone, which take turns."""
    one, many = Many(queries[:1], **how), Many(queries, **how)
    for each in (one, many):
        each.cpu(pushes)  # windows are full, kernels compiled
    state = many.state / one.state
    ratios, took = [], []
    for _ in range(rounds):
        alone = one.cpu(pushes)
        took.append(many.cpu(pushes))
        ratios.append(took[-1] / alone)
    one.db.close()
    many.db.close()
    return [
        Measure(f"{name}: state of one", state, "times", STATE_BAR, most=True),
        Measure.of(f"{name}: CPU of one", ratios, "times", CPU_BAR, most=True,
                   about=f"{median(took) * 1e3:.1f} ms a push, read"),
    ]  # fmt: skip


def _tails(pushes: int, rounds: int) -> list[Measure]:
    """Three group-bys over one join, which alone tells nothing: of its pairs none satisfies the condition."""
    texts = [f"SELECT {by}, {told} FROM a, b WHERE a.item = b.item GROUP BY {by} WINDOW 1" for by, told in _TAILS]
    nothing = "SELECT a.item, a.price, b.price AS q FROM a, b WHERE a.item = b.item AND a.price + b.price < 0 WINDOW 1"
    return _over("three group-bys over a join", "the join and the three", texts, nothing, pushes, rounds)


def _nested(pushes: int, rounds: int) -> list[Measure]:
    """Four queries over one group-by over one join, which alone tells nothing: no group satisfies HAVING."""
    made = "SELECT a.item, count(*) AS n, sum(b.price) AS s FROM a, b WHERE a.item = b.item GROUP BY a.item{}"
    grouped, nothing = made.format(""), made.format(" HAVING count(*) < 0 WINDOW 1")
    texts = [
        f"{grouped} ORDER BY s DESC LIMIT 10 WINDOW 1",
        f"SELECT DISTINCT n, floor(s / 100) AS s, item FROM ({grouped}) AS x WINDOW 1",
        f"SELECT n, sum(s) AS s, max(item) AS item FROM ({grouped}) AS x GROUP BY n WINDOW 1",
        f"SELECT item % 10 AS i, max(n) AS n, min(s) AS s FROM ({grouped}) AS x GROUP BY item % 10 WINDOW 1",
    ]
    return _over("four queries over a group-by of a join", "the group-by and the four", texts, nothing, pushes, rounds)


def _over(
    name: str, of: str, texts: Sequence[str], nothing: str, pushes: int, rounds: int
) -> list[Measure]:  # fmt: skip
    """State and CPU of queries over one part beside those of the part (`nothing`) and of what each has above it.

    Raises AssertionError where one of them tells anything else than alone.
    """
    ways = [Many(each, emit="changes") for each in (texts, *([text] for text in texts), [nothing])]
    ways[-1].cpu(pushes)
    beside_alone(name, *(each.found(pushes) for each in ways[:-1]))
    again = len(texts) - 1
    held, *alone, part = (each.state for each in ways)
    state, share = held / (sum(alone) - again * part), held / sum(alone)
    ratios, shares, took = [], [], []
    for _ in range(rounds):
        cpu, *apart, below = (each.cpu(pushes) for each in ways)
        ratios.append(cpu / (sum(apart) - again * below))
        shares.append(cpu / sum(apart))
        took.append(cpu)
    for each in ways:
        each.db.close()
    return [
        Measure(f"{name}: state of {of}", state, "times", STATE_BAR, most=True,
                about=f"{share:.2f} times that of queries apart"),
        Measure.of(f"{name}: CPU of {of}", ratios, "times", CPU_BAR, most=True,
                   about=f"{median(took) * 1e3:.1f} ms a push, read; {median(shares):.2f} times that of queries apart"),
    ]  # fmt: skip


def beside_alone(name: str, together: list[Any], *apart: list[Any]) -> None:
    """Raise AssertionError where one of several queries has told other rows than it tells alone."""
    for number, (shared, (alone,)) in enumerate(zip(together, apart, strict=False)):
        assert shared.num_rows, f"{name}: query {number} told nothing"
        assert shared.equals(alone), f"{name}: query {number} told other rows than alone"


def _windows(pushes: int, rounds: int) -> list[Measure]:
    """State and CPU of one join in windows of three lengths beside those of the longest alone, and of all apart.

    Raises AssertionError where one of them tells anything else than alone.
    """
    texts = [_PAIRS.replace("WINDOW 1", f"WINDOW '{k} ms'") for k in (1_000, 500, 250)]
    name = "a join in windows of three lengths"
    ways = [Many(each, emit="changes") for each in (texts, *([text] for text in texts))]
    beside_alone(name, *(each.found(pushes) for each in ways))
    held, longest, *_ = (each.state for each in ways)
    ratios = []
    for _ in range(rounds):
        cpu, *apart = (each.cpu(pushes) for each in ways)
        ratios.append(cpu / sum(apart))
    for each in ways:
        each.db.close()
    return [
        Measure(f"{name}: state of the longest", held / longest, "times", STATE_BAR, most=True),
        Measure.of(f"{name}: CPU of three apart", ratios, "times", CPU_BAR, most=True),
    ]


def _on_two_threads(
    name: str, queries: Sequence[str], pushes: int, streams: str = "ab", rows: int = ROWS
) -> Measure:  # fmt: skip
    """CPU time of the busiest thread of a push to each stream, the one that pushes, with one thread beside two.

    Raises AssertionError where outputs differ.
    """
    one, two = (Many(queries, threads=threads, streams=streams, rows=rows, emit="changes") for threads in (1, 2))
    ratios: list[float] = []
    took: list[list[float]] = [[], []]
    for number in range(_FILL + pushes):
        cpus, found = [0.0, 0.0], []
        for which, each in enumerate((one, two)):
            made = [each.made() for _ in each.streams]  # a join works once both have come
            cpu, wall = time.thread_time(), time.perf_counter()
            for stream, batch in made:
                each.db.push(stream, batch)
            cpus[which], wall = time.thread_time() - cpu, time.perf_counter() - wall
            if number >= _FILL:
                took[which].append(wall)
            found.append([query.poll() for query in each.queries])
        assert found[0] == found[1], f"{name}: outputs on two threads differ"
        if number >= _FILL:
            ratios += cpus
    one.db.close()
    two.db.close()
    pairs = [alone / shared for alone, shared in zip(ratios[::2], ratios[1::2], strict=True)]
    about = f"by the clock {median(took[0]) / median(took[1]):.2f}, {median(took[0]) * 1e3:.1f} ms on one"
    return Measure.of(f"two threads, {name}: busiest of one", pairs, "times", THREADS_BAR, about=about)


def _constrained(orders: int) -> list[Measure]:
    """State of a join of orders with three parts of each, in pushes of ROWS orders, without constraints and with."""
    held, rows = [], []
    for known in (False, True):
        with nile.connect() as db:
            db.stream("orders", [("t", pa.float64()), ("id", pa.int64()), ("price", pa.float64())], time="t")
            db.stream("parts", [("t", pa.float64()), ("order_id", pa.int64()), ("weight", pa.float64())], time="t")
            if known:
                db.sql("DECLARE CLUSTERED parts (order_id) WITHIN 100")
                db.sql("DECLARE REFERENTIAL parts (order_id) TO orders (id) WITHIN 100")
            standing = db.subscribe(
                "SELECT o.id, o.price, p.weight, p.t - o.t AS delay FROM orders o, parts p WHERE o.id = p.order_id"
            )
            draw = np.random.Generator(np.random.PCG64(7))
            of = np.repeat(np.arange(orders), 3)
            at = of + 20 * draw.random(of.shape[0])  # parts of some twenty orders are on their way
            of, at = of[order := np.argsort(at)], at[order]
            cuts = np.searchsorted(at, np.arange(0, orders + 1, _ORDERS))
            found = 0
            for number, (begin, end) in enumerate(pairwise(cuts)):
                ids = np.arange(_ORDERS) + number * _ORDERS
                db.push("orders", {"t": ids * 1.0, "id": ids, "price": draw.random(_ORDERS)})
                part = slice(begin, end)
                db.push("parts", {"t": at[part], "order_id": of[part], "weight": draw.random(end - begin)})
                found += sum(batch.num_rows for batch in standing.poll())
            monitors = db.sql("SELECT coalesce(sum(memory), 0) AS bytes FROM nile_constraints").fetchall()[0][0]
            held.append(standing.memory + monitors)
            rows.append(found)
    return [
        Measure("orders and parts: state without constraints", held[0] / held[1], "times", STATE_FALLS,
                about=f"{held[0] / 1e6:.1f} and {held[1] / 1e6:.2f} MB, what is measured of the streams among it; "
                      f"{rows[0]:,} and {rows[1]:,} pairs")
    ]  # fmt: skip


def _chain(plans: int) -> Measure:
    """What Chain holds beyond the best order of work, over random plans of two paths, beside FIFO."""
    draw = np.random.Generator(np.random.PCG64(41))
    beyond: dict[str, list[float]] = {"chain": [], "fifo": []}
    for _ in range(plans):
        paths = [
            [Step(int(draw.integers(1, 4)), float(draw.random())) for _ in range(draw.integers(1, 4))] for _ in range(2)
        ]
        arrivals = [Arrival(int(at), int(draw.integers(0, 2))) for at in np.sort(draw.integers(0, 6, 4))]
        for name, found in beyond.items():
            sizes = simulate(paths, arrivals, SCHEDULERS[name](paths)).sizes
            least = least_sizes(paths, arrivals, len(sizes) - 1)
            found.append(max(held - best for held, best in zip(sizes, least, strict=True)))
    about = f"{plans:,} plans; mean {fmean(beyond['chain']):.3f}, of FIFO {fmean(beyond['fifo']):.3f}"
    return Measure(
        "Chain: most held beyond the best order", max(beyond["chain"]), "batches", 2.0, most=True, about=about
    )


@benchmark("runtime", "Many standing queries over few streams: equal ones, dashboards over a join, 1,000 selections")
def many_queries(
    pushes: int = PUSHES, rounds: int = ROUNDS, selections: int = SELECTIONS, orders: int = 200_000,
    plans: int = 1_000, bursts: int = 10, precise: int = 1_000, mixes: int = 30,
) -> Result:  # fmt: skip
    """CPU time; pushes of 10,000 rows."""
    grouped = "SELECT item, count(*) AS n, sum(price) AS total FROM a GROUP BY item WINDOW 1"
    measures = _beside_one(f"{EQUAL} equal queries", [grouped] * EQUAL, pushes, rounds)
    boards = [_JOINED.format(f" HAVING count(*) > {k % 10}") for k in range(DASHBOARDS)]
    measures += _beside_one(f"{DASHBOARDS} dashboards of 10 kinds over a join", boards, pushes // 4, rounds)
    equal = [_JOINED.format("")] * DASHBOARDS
    measures += _beside_one(f"{DASHBOARDS} equal dashboards over a join", equal, pushes // 4, rounds)
    for common in (_tails, _nested, _windows):
        measures += common(pushes // 4, rounds)
    for what, text in (("rare", "price > {} AND item = {}"), ("one item each", "price > 0 AND item = {1}")):
        chosen = Many(
            [f"SELECT t, item, price FROM a WHERE {text.format(99 + k / selections, k)}" for k in range(selections)],
            streams="a",
        )
        chosen.cpu(2)
        found = [chosen.cpu(pushes // 4, read=False) * 1e3 for _ in range(rounds)]
        begun = time.process_time()
        rows = chosen.read()
        reading = (time.process_time() - begun) / (pushes // 4 * rounds) * 1e3
        chosen.db.close()
        measures.append(
            Measure.of(f"{selections:,} selections, {what}: a push", found, "ms", PUSH_BAR_MS, most=True,
                       about=f"{rows:,} rows found; reading them took {reading:.2f} ms a push more")
        )  # fmt: skip
    windows = range(500, 500 + DASHBOARDS)
    apart = [f"SELECT item, count(*) AS n, sum(price) AS total FROM a GROUP BY item WINDOW '{k} ms'" for k in windows]
    measures.append(_on_two_threads("one group-by of 100,000 rows a push", [grouped], pushes // 2, "a", 100_000))
    measures.append(_on_two_threads("two group-bys", apart[-2:], pushes // 2, "a"))
    measures.append(_on_two_threads(f"{DASHBOARDS} group-bys", apart, max(2, pushes // 8), "a"))
    joins = [_JOINED.format("").replace("WINDOW 1", f"WINDOW '{k} ms'") for k in (900, 1_000)]
    measures.append(_on_two_threads("two joins and group-bys", joins, max(2, pushes // 8)))
    measures.append(_on_two_threads("one join", [_PAIRS], max(2, pushes // 8)))
    measures.append(_on_two_threads("one join with a condition", [_SELECTED], max(2, pushes // 8)))
    measures.append(_on_two_threads("one join and group-by", [_JOINED.format("")], max(2, pushes // 8)))
    measures += _constrained(orders)
    measures.append(_chain(plans))
    measures += through_bursts(bursts)
    measures += foretold(precise)
    measures += dealt_out(mixes)
    return Result(
        name="runtime",
        title="standing queries beside one of them",
        unit="rows",
        work=ROWS,
        timings=(),
        measures=tuple(measures),
        notes=("CPU time of the process, pushes of 10,000 rows to two streams in turn",),
    )
