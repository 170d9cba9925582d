"""A process that pushes known streams with bursts into a database with a store and bounds, for ever.

`python tests/harness/child_means.py PATH memory|cpu [fork]`.  What is decided when tuples come (levels of samples,
filters) goes to a file beside the store, so that a run that is never killed can be given the same decisions.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from fork_server import serve

import nile
from nile.execution.envelopes import packed
from nile.execution.live.means.bounded import BoundedSubscription
from nile.execution.live.means.bounds import Means
from nile.execution.live.means.compressed import CompressedSubscription, Narrow
from nile.execution.live.means.gate import Gate

Decide = Callable[[str, Callable[[], Any]], Any]
"""(what is decided, when and of which query; what this process would decide) -> what is done."""

BOUND = {"memory": 1_300_000, "cpu": 64_000_000}
"""Bytes for all queries together: with `memory` they suffice at the usual rate, and not in a burst."""
_CPU, _TUPLE = 0.5, 1e-4
"""With `cpu`: of a core, and what each tuple that a plan takes in is said to cost, on the clock of the data."""
_USUAL, _TIMES, _CYCLE = 20, 10, 260
_BURST = range(60, 120)
_UNREAD = 10
"""Pushes after which the reader reads."""

_GROUPS = "SELECT k % 20 AS g, count(*) AS n, sum(x) AS y FROM s GROUP BY k % 20"
_RECENT = "SELECT k % 4 AS g, count(*) AS n, sum(x) AS y FROM s [ROWS 90] GROUP BY k % 4"
_LEFT = "SELECT a.k, a.x, b.x AS y FROM s a LEFT JOIN r b ON a.k = b.k AND b.x > 0.5 WINDOW 0.05"
_DISTINCT = "SELECT DISTINCT k FROM s WINDOW 2"
QUERIES: dict[str, tuple[str, dict[str, Any]]] = {
    "rows": (_RECENT, {"emit": "changes"}),
    "rows above": (f"{_RECENT} HAVING count(*) > 20", {"emit": "changes"}),
    "left": (_LEFT, {"emit": "changes"}),
    "left again": (_LEFT, {"emit": "changes"}),
    "groups": (f"{_GROUPS} WINDOW 2", {}),
    "groups again": (f"{_GROUPS} WINDOW 2", {}),
    "large": (f"{_GROUPS} HAVING count(*) > 25 WINDOW 2", {}),
    "join": ("SELECT count(*) AS n, sum(a.x * b.x) AS y FROM s a, r b WHERE a.k = b.k WINDOW 1", {}),
    "pairs": ("SELECT a.k, b.x FROM s a, r b WHERE a.k = b.k WINDOW 0.1", {}),
    "chosen": ("SELECT k, x FROM s WHERE x > 0.9", {}),
    "values": (_DISTINCT, {}),
    "both": ("SELECT k FROM s INTERSECT SELECT k FROM r WINDOW 1", {}),
    "appended": (_DISTINCT, {"emit": "append"}),
    "appended too": ("SELECT k + 1 AS k FROM (SELECT DISTINCT k FROM s) AS d WINDOW 2", {"emit": "append"}),
}  # fmt: skip
EXACT = ("rows", "rows above", "left", "left again")
"""Never sampled; in pairs that share a plan."""
TOGETHER = (EXACT[:2], EXACT[2:], ("groups", "groups again", "large"), ("appended", "appended too"))
"""Those that share a plan."""
SAMPLED = tuple(name for name in QUERIES if name not in EXACT)


def rows(step: int) -> dict[str, Any]:
    """What push number `step` brings: 0.05 s of one of the streams."""
    draw = np.random.Generator(np.random.PCG64(step))
    n = _USUAL * (_TIMES if step % _CYCLE in _BURST else 1)
    at = 0.05 * step + 0.05 * np.sort(draw.random(n))
    return {"t": at, "k": draw.integers(0, 1_500, n), "x": np.round(draw.random(n), 3)}


def reached(db: nile.Database) -> int:
    """How many pushes it has taken."""
    return max(db._live.offsets.get(name, 0) for name in "sr")


def taken(step: int) -> dict[str, int]:
    """Tuples of each stream in all pushes before `step`."""
    sizes = [_USUAL * (_TIMES if each % _CYCLE in _BURST else 1) for each in range(step)]
    return {"s": sum(sizes[::2]), "r": sum(sizes[1::2])}


def opened(path: Path | None, how: str | None, decide: Decide | None = None) -> nile.Database:
    """The database at `path`: new, or gone on with.  how: "memory", "cpu", None without bounds.

    decide: says, by what it is and what would be decided here, what is done.
    """
    bounds: dict[str, Any] = {} if how is None else {"state": BOUND[how], "cpu": _CPU if how == "cpu" else None}
    db = nile.connect(path, checkpoint=None, **bounds)
    means = db._live.means
    if means is not None:
        means.meter = lambda: _TUPLE * sum(sum(gate.took.values()) for gate in means.gates)
        means.clock = lambda: 0.05 * reached(db)
        if decide is not None:
            _decided(db, means, decide)
    for name in "sr":
        db.stream(name, [("t", "float64"), ("k", "int64"), ("x", "float64")], time="t", keep=1)
    for name, (text, options) in QUERIES.items():
        db.subscribe(text, name=name, **options)
    return db


def push(db: nile.Database, begin: int, end: int) -> None:
    """Pushes begin..end-1, and what the reader reads meanwhile."""
    for step in range(begin, end):
        db.push("sr"[step % 2], rows(step), offset=step + 1)
        if step % _UNREAD == _UNREAD - 1:
            for name in QUERIES:
                db.subscription(name).poll()


def _decided(db: nile.Database, means: Means, decide: Decide) -> None:
    """Let `decide` be asked of everything that goes by time or bytes: of whoever shares a plan the same."""

    asked_before: dict[str, int] = {}

    def numbered(what: str) -> str:
        asked_before[what] = asked_before.get(what, -1) + 1
        return f"{what} {asked_before[what]}"

    def asked(what: str, own: Callable[..., Any]) -> Callable[..., Any]:
        def instead(gate: Gate, *given: Any) -> Any:
            found: Any = None
            known = [db._live.standing.get(name) for name in SAMPLED]
            names = [
                name
                for name, one in zip(SAMPLED, known, strict=True)
                if isinstance(one, BoundedSubscription) and one.gate is gate
            ]
            for name in names:
                here = decide(
                    numbered(f"{reached(db)} {what} {name.replace(' ', '_')}"),
                    lambda: own(gate, *given) if found is None else found,  # noqa: B023
                )
                assert found in (None, here), f"{names}: who shares a plan has decided apart: {found}, {here}"
                found = here
            return found

        return instead

    means.level, means.fits, means.room, means.lends = (  # type: ignore[method-assign]
        asked("level", means.level), asked("fits", means.fits), asked("room", means.room), asked("lends", means.lends),
    )  # fmt: skip
    for gate in means.gates:
        if isinstance(gate, Narrow):
            gate.fits, gate.room, gate.lends = means.fits, means.room, means.lends


def seen(db: nile.Database, names: tuple[str, ...] = tuple(QUERIES)) -> dict[str, Any]:
    """All that must have come back of queries."""
    out: dict[str, Any] = {}
    for name in names:
        one = db.subscription(name)
        state = one.capture()
        if isinstance(one, CompressedSubscription):
            del state["means"]["each"]  # bytes of a tuple, which depend on how tables have grown
        out[f"{name}: state"] = packed("query", state)
        waits = [row for batch in one._found for row in batch.to_pylist()]
        out[f"{name}: unread"] = (one.outputs - one.unread, waits)
        out[f"{name}: accounting"] = one.accounting
    return out


def main() -> None:
    """Push and commit until killed; says how many pushes are durable."""
    push(opened(None, sys.argv[2]), 0, 90)  # kernels are compiled before anyone may be killed, or they never would be
    if "fork" in sys.argv[3:]:
        serve(work)
    else:
        work()


def work() -> None:
    """Open the store and go on from its offset."""
    path = Path(sys.argv[1])
    with path.with_suffix(".decisions").open("a") as told:
        told.write("\n")  # behind a line that a kill has cut

        def decide(what: str, own: Callable[[], Any]) -> Any:
            found = own()
            told.write(f"{what} {float(found)!r} .\n")
            told.flush()
            return found

        db = opened(path, sys.argv[2], decide)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while True:
            begin = reached(db)
            push(db, begin, begin + 1 + begin * 17 % 23)
            db.checkpoint()
            sys.stdout.write(f"{reached(db)}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
