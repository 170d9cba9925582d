"""How many Nexmark events a second standing queries take, each alone, on one core."""

from __future__ import annotations

import tempfile
import time

from nile.base.writing import write_parts
from nile.engine.database import Database
from nile.experiments.benchmarks.harness import Measure, Result, benchmark
from nile.experiments.benchmarks.nexmark.data import STREAMS, events
from nile.experiments.benchmarks.nexmark.queries import QUERIES
from nile.summaries.heavy import pa, pc

__all__ = ["SIDE", "nexmark", "pushed"]

TITLE = "Nexmark: events a second through standing queries"
EVENTS, ROUNDS, BATCH_S = 6_000, 5, 5
WINDOW = "10 seconds"
SIDE = {"key": ["Google", "Facebook", "Baidu"], "value": ["g", "f", "b"]}


@benchmark("nexmark", TITLE)
def nexmark() -> Result:
    """Five rounds over 6,000 events, five seconds of event time at once; each query in a database of its own."""
    tables = events(EVENTS)
    seconds: dict[str, list[float]] = {name: [] for name in QUERIES}
    for number in range(ROUNDS + 1):
        for name in QUERIES:
            spent = pushed(name, tables)[0]
            if number:  # the first round loads what is loaded once
                seconds[name].append(spent)
    measures = tuple(
        Measure.of(f"{name}, {QUERIES[name].about}", [EVENTS / each for each in some], "events/s", None)
        for name, some in seconds.items()
    )
    return Result(
        name="nexmark",
        title=TITLE,
        unit="events",
        work=EVENTS,
        timings=(),
        measures=measures,
        notes=(
            f"process CPU, from the push to the last change read, the median of {ROUNDS} rounds; a query without "
            f"windows of its own stands over the last {WINDOW}",
            "published figures of other engines are of other machines and of more events; they are no bar: of Flink "
            "in Alibaba Cloud 5,000 to 55,000 events a second and compute unit, by its white paper on Nexmark",
        ),
    )


def standing_text(name: str) -> str:
    """The statement as it stands: under one window where it names none."""
    text = QUERIES[name].nile
    bounded = any(word in text for word in ("TUMBLE", "HOP", "SESSION")) or QUERIES[name].by
    return text if bounded else f"{text} WINDOW '{WINDOW}'"


def pushed(name: str, tables: dict[str, pa.Table]) -> tuple[float, list[pa.RecordBatch]]:
    """(CPU seconds, what came out) of one query over all events, in steps of event time, as q12's clock goes."""
    asked, clock = QUERIES[name], [0]
    with Database() as db, tempfile.TemporaryDirectory() as folder:
        for stream in STREAMS:
            db.stream(stream, tables[stream].schema, time="datetime")
        db.register("side_input", SIDE)
        if asked.before is not None:
            db.stream("bid_now", [("at", pa.timestamp("us")), ("bidder", pa.int64())], time="at", stamp=True)
            db._live.get("bid_now").clock = lambda: clock[0]
            db.sql(asked.before)
        standing = db.subscribe(standing_text(name))
        bounds = [pc.min_max(table.column("datetime").cast(pa.int64())).as_py() for table in tables.values()]
        step, last = BATCH_S * 1_000_000, max(each["max"] for each in bounds)
        pieces = []
        for begin in range(min(each["min"] for each in bounds), last + 1, step):
            some = {}
            for stream, table in tables.items():
                at = table.column("datetime").cast(pa.int64())
                some[stream] = table.filter(pc.and_(pc.greater_equal(at, begin), pc.less(at, begin + step)))
            pieces.append((begin + step, some))
        found: list[pa.RecordBatch] = []
        spent = time.process_time()
        for end, some in pieces:
            clock[0] = 1_000 * (end - step)
            for stream, rows in some.items():
                if rows.num_rows:
                    db.push(stream, rows)
            db.advance(end / 1e6)
            found += standing.poll()
        if asked.by:
            write_parts(found, standing.schema, f"{folder}/{name}", "csv", asked.by)
        return time.process_time() - spent, found
