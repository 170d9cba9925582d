"""States of standing queries that earlier versions wrote are read for good, and the form does not change unnoticed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from twin_held import feed

from nile.exact.pipeline.pipeline import FORMAT, Pipeline
from nile.exact.plan.algebra import (
    Aggregate,
    Distinct,
    GraphJoin,
    Group,
    Join,
    Minus,
    Plan,
    Project,
    Range,
    Rows,
    Scan,
    Stored,
    Unbounded,
    Union,
)
from nile.execution.envelopes import content, flat, packed
from nile.summaries.envelope import unpack

GOLDEN = Path(__file__).parents[1] / "golden"
FILES = sorted(GOLDEN.glob("standing-queries-*.nile"))
ROW = pa.schema([("k", pa.int64()), ("x", pa.float64()), ("s", pa.string())])
FUNCTIONS = ("count", "sum", "avg", "min", "max", "median")


def named(scan: Plan, side: str) -> Plan:
    schema = pa.schema([(f"{side}.{field.name}", field.type) for field in ROW])
    return Project(scan, lambda rows: pa.RecordBatch.from_arrays(rows.columns, schema=schema), schema)


def scan(name: str, window: Any, position: int) -> Scan:
    return Scan(name, ROW, window, position)


STORED = Stored("s", pa.table({"l": [1, 2, 2], "t": ["x", None, "z"]}))
PLANS: dict[str, tuple[Plan, str, str]] = {
    "sums": (
        Group(scan("a", Range(9), 0), ("k",), tuple(Aggregate(f, f, "x") for f in FUNCTIONS)),  # type: ignore[arg-type]
        "nta",
        "changes",
    ),
    "texts": (Group(scan("a", Unbounded(), 0), (), (Aggregate("m", "max", "s"),)), "tpa", "changes"),
    "window": (scan("a", Rows(3), 0), "nta", "snapshot"),
    "streams": (
        Join(named(scan("a", Range(7), 0), "l"), named(scan("b", Range(5), 1), "r"), (("l.s", "r.s"),)),
        "nta",
        "changes",
    ),
    "rows": (Join(scan("a", Range(7), 0), STORED, (("k", "l"),)), "tpa", "append"),
    "graph": (
        GraphJoin(
            (named(scan("a", Unbounded(), 0), "l"), named(scan("b", Unbounded(), 1), "r")), ("l.k", "r.k"), ((0, 1, 6),)
        ),
        "nta",
        "changes",
    ),
    "bags": (
        Distinct(Minus(Union(scan("a", Range(4), 0), scan("b", Rows(2), 1), True), scan("b", Range(6), 2), True)),
        "ita",
        "changes",
    ),
}


def fed(one: str, first: int, last: int, pipeline: Pipeline | None = None) -> tuple[Pipeline, str]:
    """A pipeline and what it told over tuples `first` to `last` of two streams."""
    plan, scheduling, emit = PLANS[one]
    made = Pipeline(plan, scheduling, emit) if pipeline is None else pipeline  # type: ignore[arg-type]
    doubles = [0.1, -0.0, None, 1e300, -1e300, float("nan"), 2.5e-320, float("inf"), 3.0, 1e16]
    out = []
    for at in range(first, last):
        rows = pa.RecordBatch.from_arrays(
            [pa.array([at % 3 or None]), pa.array([doubles[at % 10]], pa.float64()), pa.array(["pq" * (at % 2)])],
            schema=ROW,
        )
        out += feed(made, [("ab"[at % 2], np.array([at], np.int64), rows)])
    if last == 40:
        out += made.finish(60)
    return made, repr([(each.ts.tolist(), each.sign.tolist(), each.rows.to_pylist()) for each in out])


def states() -> dict[str, Any]:
    return {one: fed(one, 0, 21)[0].capture() for one in PLANS}


def write() -> None:
    """Add the file of a new form: call this once, when FORMAT has been raised."""
    GOLDEN.mkdir(exist_ok=True)
    (GOLDEN / f"standing-queries-{FORMAT}.nile").write_bytes(packed("golden", states()))


def test_there_is_a_file_of_every_form() -> None:
    assert [path.name for path in FILES] == [f"standing-queries-{k}.nile" for k in range(1, FORMAT + 1)]


def test_the_form_is_that_of_the_newest_file() -> None:
    envelope = unpack(FILES[-1].read_bytes())
    params, arrays = flat(states())
    assert envelope.params == params
    assert envelope.arrays.keys() == arrays.keys()
    for name, array in arrays.items():
        assert (envelope.arrays[name].dtype, envelope.arrays[name].tobytes()) == (array.dtype, array.tobytes()), name


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
@pytest.mark.parametrize("one", PLANS)
def test_states_of_every_version_go_on(path: Path, one: str) -> None:
    never, _ = fed(one, 0, 21)
    again = Pipeline(*PLANS[one])  # type: ignore[arg-type]
    again.restore(content(unpack(path.read_bytes()))[one])
    assert fed(one, 21, 40, again)[1] == fed(one, 21, 40, never)[1]
    assert packed("query", again.capture()) == packed("query", never.capture())
