"""A table in memory, whose times are looked at once, is the stream that its rows make in batches."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from nile.streams.manager import StreamManager, StreamSpec
from nile.summaries.errors import TimestampOrderError

SECOND = 10**9


@settings(max_examples=100, deadline=None)
@given(
    times=st.lists(st.sampled_from([0.0, 1.0, 2.0, 2.5, 3.0]), max_size=30),
    bad=st.sampled_from([None, None, math.nan, "late"]),
    cuts=st.lists(st.integers(0, 30), max_size=4),
    kind=st.sampled_from(["seconds", "ns", "text", "encoded"]),
    lateness=st.sampled_from([None, None, 5]),
)
def test_a_table_taken_whole_is_the_stream_read_in_batches(
    times: list[float], bad: Any, cuts: list[int], kind: str, lateness: int | None
) -> None:
    ordered: list[float] = sorted(times) + ([] if bad is None else [0.5 if bad == "late" else bad])
    ts = pa.array(ordered, pa.float64())
    if kind == "text":
        ts = pa.array([str(time) for time in ordered], pa.string())
    if kind == "ns":
        ts = pa.array([0 if math.isnan(time) else round(time * SECOND) for time in ordered], pa.timestamp("ns"))
    n = len(ordered)
    key = pa.array([("a", "b", None)[at % 3] for at in range(n)], pa.string())
    table = pa.table({"ts": ts, "key": key.dictionary_encode() if kind == "encoded" else key, "at": np.arange(n)})
    edges = sorted({0, n, *(cut for cut in cuts if cut < n)})
    table = pa.concat_tables([table.slice(a, b - a) for a, b in pairwise(edges)] or [table])

    def read(whole: bool) -> Any:
        spec = StreamSpec("store1", table, time="ts", key="key", lateness=lateness, carry=("at",))
        stream, found = StreamManager(spec), []
        for _ in range(2):  # the second time what was found of the times is known
            found = []
            try:
                for batch in stream.whole(1) if whole else stream.batches():
                    assert batch.ordinal == len(found)
                    assert batch.carried is not None
                    assert batch.ts.flags.writeable
                    found += zip(batch.ts.tolist(), batch.key.to_pylist(), batch.carried["at"].to_pylist(), strict=True)
                    stream.accounting.check()
            except TimestampOrderError as error:
                return str(error)
        return found, stream.accounting, stream.quarantine().to_pylist(), stream.late().to_pylist()

    assert read(True) == read(False)
