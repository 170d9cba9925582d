"""What a summary that is kept once costs a hundred queries, and what it brings each of them."""

from __future__ import annotations

from typing import Any

import numpy as np

import nile
from nile.experiments.benchmarks.harness import Measure, Result, benchmark
from nile.summaries.heavy import pa

__all__ = ["shared_summary"]

TITLE = "one grid for a hundred queries"
TUPLES = 100_000
BURSTS, BURST, COMMON = 200, 20, 5_000
BUDGET = 0.1
MOST = 1.2
SUMMARY = (
    "CREATE SUMMARY items ON sales (item) WITH GRANULARITY '30 min' AND COLLAPSE (4, 3) "
    "USING columns = 1024, max_zones = 32"
)
COUNT = f"SELECT count(*) AS n FROM sales WHERE item = ? BUDGET {BUDGET}"
SELECTION = f"SELECT item FROM sales WHERE item = ? WITH PREFERENCE desc item BUDGET {BUDGET}"


def _sales() -> pa.Table:
    """A tuple a second; `BURSTS` items, from `COMMON` on, come in one burst each among others that always come."""
    draw = np.random.default_rng(24)
    item = draw.integers(0, COMMON, TUPLES)
    for burst, at in enumerate(draw.choice(TUPLES // BURST, BURSTS, replace=False)):
        item[at * BURST : (at + 1) * BURST] = COMMON + burst
    return pa.table({"ts": np.arange(TUPLES) * 1.0, "item": item})


@benchmark("summaries", TITLE)
def shared_summary() -> Result:
    """Ask for a hundred items in turn, with and without a summary; a live stream keeps it from the first push on."""
    shared, alone = nile.connect(), nile.connect()
    table = _sales()
    for db in (shared, alone):
        db.stream("sales", table.schema, time="ts")
    shared.sql(SUMMARY)
    for db in (shared, alone):
        db.push("sales", table)
    kept, found, off = [], {shared: 0.0, alone: 0.0}, {shared: 0.0, alone: 0.0}
    for item in range(COMMON, COMMON + 100):
        for db in (shared, alone):
            found[db] += db.sql(SELECTION, [item]).to_arrow().num_rows
            ((count,),) = db.sql(COUNT, [item]).fetchall()
            off[db] += abs(count - BURST) / BURST / 100
        (row,) = shared.sql("SHOW SUMMARIES").to_arrow().to_pylist()
        kept.append(row)
    first, last = kept[0], kept[-1]
    about = f"{last['served']} queries served, zones {last['zones']}"
    measures = (
        Measure("bytes kept, 100 queries over 1", last["bytes"] / first["bytes"], "", MOST, most=True, about=about),
        Measure("counters written, 100 queries over 1", last["upkeep"] / first["upkeep"], "", MOST, most=True),
        *_brought("tuples found by a selection of an item", found, alone, shared, 1.0 / (100 * BURST)),
        *_brought("how far a count is off", off, alone, shared, 1.0),
    )
    return Result(
        name="summaries",
        title=TITLE,
        unit="tuples",
        work=TUPLES,
        timings=(),
        measures=measures,
        notes=(
            f"items that come {BURST} times in one burst, among {COMMON:,} that come all the time; each query has "
            f"{BUDGET:.0%} of what the exact answer costs; the summary's own upkeep is paid once, by the stream",
        ),
    )


def _brought(name: str, told: dict[Any, float], alone: Any, shared: Any, unit: float) -> tuple[Measure, Measure]:
    """A figure without the summary and with it, as a share."""
    return (
        Measure(f"{name}, no summary", told[alone] * unit),
        Measure(f"{name}, the summary read", told[shared] * unit),
    )
