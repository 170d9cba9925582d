"""Two streams of a lake for the benchmark of prioritised scans, made a time range at a time.

Skewed: an item is sold in proportion to rank ** -1.2 (Zipf), and only in a tenth of the time ranges, consecutive ones
that the seed chooses; both streams sell it then.  Even: all items alike, in all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from nile.pyramid.lake.lake import DAY, LakeStream, Layout, write_part
from nile.summaries.heavy import pa

__all__ = ["STREAMS", "make"]

Array = np.ndarray[Any, Any]

STREAMS = ("left", "right")
ITEMS = 100_000
RANGES = 100
ACTIVE = 10
SKEW = 1.2
GROUP_ROWS = 16_384
_START = 16_000 * DAY


def make(
    root: Path, rows: int, *, skewed: bool = True, seed: int = 7, on_range: Callable[[int], object] | None = None
) -> None:
    """A lake at `root` with `rows` tuples in its two streams together.  Memory: the tuples of one time range.

    on_range: told after each time range how many tuples are written.
    """
    source = np.random.Generator(np.random.PCG64(seed))
    share = np.arange(1, ITEMS + 1, dtype=np.float64) ** (-SKEW if skewed else 0.0)
    share /= share.sum()
    active = ACTIVE if skewed else RANGES
    first = source.integers(0, RANGES - active + 1, ITEMS)
    done = 0
    for at, name in enumerate(STREAMS):
        own = np.random.Generator(np.random.PCG64([seed, at]))
        left = own.multinomial(rows // 2, share)  # tuples of each item that are still to come
        schema = pa.schema([("at", pa.timestamp("ns")), ("item", pa.int64()), ("price", pa.float32())])
        stream = LakeStream.create(root, Layout(name, "at", "item", schema, DAY, group_rows=GROUP_ROWS))
        for number in range(RANGES):
            begun = (first <= number) & (number < first + active)
            remaining = np.where(begun, first + active - number, 1)
            here = np.where(begun, own.binomial(left, 1.0 / remaining), 0)
            left -= here
            with stream.writing() as now:
                stream = _write(now, number, here, own)
            done += int(here.sum())
            if on_range is not None:
                on_range(done)


def _write(stream: LakeStream, number: int, counts: Array, source: np.random.Generator) -> LakeStream:
    """One time range: counts[i] tuples of item i at random times."""
    items = np.repeat(np.arange(ITEMS), counts)
    if not len(items):
        return stream
    source.shuffle(items)
    ts = np.sort(source.integers(0, DAY, len(items))) + _START + number * DAY
    price = pa.array(source.random(len(items), np.float32))
    table = pa.table([pa.array(ts).cast(pa.timestamp("ns")), pa.array(items), price], schema=stream.layout.schema)
    file = stream.staging() / f"{number}.parquet"
    ordinals = np.arange(stream.tuples, stream.tuples + len(items))
    part = write_part(file, ordinals, ts, table, "item", group_rows=stream.layout.group_rows, sync=False)
    return stream.commit([(file, part)], {"id": str(number)})
