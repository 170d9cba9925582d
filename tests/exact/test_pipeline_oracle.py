"""At every instant the changes add up to the snapshot query over the windows (Definition 1)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pyarrow as pa
import pytest
from oracle_pipeline import Row
from workload_pipeline import case, changes, difference, told

from nile.exact.pipeline.pipeline import Changes
from nile.exact.plan.algebra import Range, Rows, Scan, walk

NORMAL, LONG = 190, 5000


def wrong(scheduling: str, seeds: range) -> dict[int, str]:
    found = {}
    for seed in seeds:
        one = case(seed)
        if text := difference(one, changes(one, scheduling, seed)[0]):
            found[seed] = text
    return found


@pytest.mark.parametrize("scheduling", ["nta", "tpa"])
def test_changes_add_up_to_the_snapshot_query_at_every_instant(scheduling: str) -> None:
    assert wrong(scheduling, range(NORMAL)) == {}


@pytest.mark.long
@pytest.mark.parametrize("scheduling", ["nta", "tpa"])
def test_changes_add_up_to_the_snapshot_query_at_every_instant_of_many_more_plans(scheduling: str) -> None:
    assert wrong(scheduling, range(NORMAL, NORMAL + LONG)) == {}


def net(out: list[Changes]) -> dict[tuple[int, Row], int]:
    counts: Counter[tuple[int, Row]] = Counter()
    for ts, sign, row in told(out):
        counts[ts, row] += sign
    return {each: n for each, n in counts.items() if n}


def apart(seeds: range) -> list[int]:
    """Seeds whose plans change differently under negative tuples and under time probing, over 900 tuples per stream."""
    found = []
    for seed in seeds:
        one = replace(case(seed, tuples=900), end=10_000)
        if all(not isinstance(node, Scan) or isinstance(node.window, Range | Rows) for node in walk(one.plan)):
            first, second = (net(changes(one, each, seed + i)[0]) for i, each in enumerate(("nta", "tpa")))
            found += [seed] if first != second else []
    return found


def test_schedulings_agree_over_streams_of_many_steps() -> None:
    assert apart(range(12)) == []


@pytest.mark.long
def test_schedulings_agree_over_streams_of_many_steps_for_many_more_plans() -> None:
    assert apart(range(12, 1000)) == []


def as_bytes(out: list[Changes]) -> bytes:
    sink = pa.BufferOutputStream()
    if not out:
        return b""
    table = pa.concat_tables(
        pa.Table.from_batches([each.rows])
        .append_column("_ts", pa.array(each.ts))
        .append_column("_s", pa.array(each.sign))
        for each in out
    ).combine_chunks()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


@pytest.mark.parametrize("scheduling", ["nta", "tpa"])
def test_any_cut_of_the_input_gives_the_same_bytes(scheduling: str) -> None:
    for seed in range(25):
        one = case(seed)
        first, second = (as_bytes(changes(one, scheduling, cut)[0]) for cut in (seed, seed + 1))
        assert first == second, seed
