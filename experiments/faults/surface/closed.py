"""Closed is closed: whatever is asked of a database after `close()` is refused in one sentence, and at once."""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import nile
from nile.experiments.faults.fault import Fault, Wrong, expect
from nile.summaries.heavy import pa

__all__ = ["FAULT", "asked", "calls_of_a_database"]

_ROWS = 1_000


@dataclass(frozen=True, slots=True)
class _Held:
    """What somebody still holds of a database."""

    db: nile.Database
    join: Any
    selection: Any
    aggregate: Any
    builder: Any
    standing: Any
    named: Any
    progress: Any


class SilentSensor(nile.Sensor):
    """A source of nothing: the table of sensors that is asked for has one that is never opened."""

    def read(self) -> Any:
        """No value."""
        return nile.NO_VALUE


def _table() -> pa.Table:
    return pa.table({"t": range(_ROWS), "k": [i % 7 for i in range(_ROWS)]})


_ARGUMENTS: Mapping[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "register": (("x", {"t": [1]}), {"time": "t"}),
    "sql": (("SELECT k FROM r",), {}),
    "query": (("r",), {}),
    "stream": (("z", [("t", "int64")]), {"time": "t"}),
    "push": (("l", {"t": [10_000], "k": [1]}), {}),
    "offset": (("l",), {}),
    "checkpoint": ((), {}),
    "advance": ((10_000,), {}),
    "run": ((), {}),
    "reduced": (("SELECT k FROM r",), {"window": "1 s"}),
    "accounting": (("l",), {}),
    "late": (("l",), {}),
    "quarantine": (("l",), {}),
    "subscribe": (("SELECT k FROM l",), {}),
    "subscription": (("q",), {}),
    "summary": (("s",), {}),
    "sensors": (("d",), {}),
    "join": (("r", "l"), {"on": "k"}),
    "select": (("l",), {"on": "k", "predicates": {"a": "k = 1"}}),
    "aggregate": (("l", {"n": "count(*)"}), {}),
    "schema": (("l",), {}),
    "time_column": (("l",), {}),
    "load_columns": (("l", ("k",)), {}),
    "manager": (("l", "k"), {}),
    "load": (("l", "k"), {}),
    "summarize": (("l", "k"), {"granularity": 1}),
}
"""How each public method is called; `standing` takes queries and is asked for below, `close` may be called again."""


def calls_of_a_database() -> dict[str, Callable[[_Held], object]]:
    """Every public method and property of a Database but `close`, by name.  Raises KeyError for one not known here."""
    calls: dict[str, Callable[[_Held], object]] = {}
    for name, member in inspect.getmembers(nile.Database):
        if name.startswith("_") or name in ("close", "standing"):
            continue
        if isinstance(member, property):
            calls[name] = partial(_read, name)
        else:
            calls[name] = partial(_called, name, *_ARGUMENTS[name])
    return calls


def _read(name: str, held: _Held) -> object:
    return getattr(held.db, name)


def _called(name: str, given: tuple[Any, ...], named: dict[str, Any], held: _Held) -> object:
    return getattr(held.db, name)(*given, **named)


_CALLS: dict[str, Callable[[_Held], object]] = {
    **calls_of_a_database(),
    "with": lambda held: held.db.__enter__(),
    "run of a join": lambda held: held.join.run(),
    "budgeted run of a join": lambda held: held.join.prefer("desc").run(0.1),
    "run of a selection": lambda held: held.selection.run(),
    "run of an aggregate": lambda held: held.aggregate.run(),
    "run of a builder": lambda held: held.builder.run(),
    "standing joins": lambda held: held.db.standing([held.join.prefer("desc")]).run(0.1),
    "poll of a kept query": lambda held: held.named.poll(),
    "iterating a kept query": lambda held: list(held.named),
    "following a kept query": lambda held: list(held.named.follow(0.0)),
    "a callback for a kept query": lambda held: held.named.attach(print),
}


def asked() -> tuple[str, ...]:
    """What is asked after close, by name."""
    return tuple(_CALLS)


def attempt(seed: int) -> None:
    """One call after close, and that answers given before are whole."""
    _tried(seed, close=True)


def control(seed: int) -> None:
    """The same of a database that nobody closed."""
    _tried(seed, close=False)


def _tried(seed: int, *, close: bool) -> None:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nile-faults-")))
        db = stack.enter_context(nile.connect(folder / "store"))
        db.register("r", _table(), time="t")
        db.stream("l", _table().schema, time="t")
        db.sql("CREATE SENSORS d (id INT, value STREAM(x DOUBLE) USING 'SilentSensor')")
        db.sql("CREATE SUMMARY s ON l (k) WITH GRANULARITY 60 AND COLLAPSE (2, 3)")
        standing = db.subscribe("SELECT k FROM l WHERE k = 1")
        named = db.subscribe("SELECT k FROM l WHERE k = 2", name="q")
        db.push("l", _table())
        db.advance(2 * _ROWS)
        answers = [db.sql(f"SELECT k FROM {name}") for name in ("r", "l")]
        begun = [answer.batches() for answer in answers]
        first = [next(each).num_rows for each in begun]
        held = _Held(
            db,
            db.join("r", "l", on="k", window=1),
            db.select("l", on="k", predicates={"a": "k = 1"}),
            db.aggregate("l", {"n": "count(*)"}),
            db.query("r").select("k"),
            standing,
            named,
            db.sql("SELECT k FROM l").progress(0),
        )
        if close:
            db.close()
            db.close()
            expect(repr(db) == "<nile.Database: closed>", repr(db))
        _refused(held, asked()[seed % len(_CALLS)])
        for before, rest, whole in zip(first, begun, answers, strict=True):
            expect(before + sum(batch.num_rows for batch in rest) == _ROWS, "an answer was cut off by close")
            expect(whole.to_arrow().num_rows == _ROWS, "an answer that was not read yet is not whole")
        expect(list(held.progress)[-1].done, "progress was cut off by close")
        expect(sum(map(len, standing.poll())) == sum(k % 7 == 1 for k in range(_ROWS)), "outputs found before are gone")


def _refused(held: _Held, name: str) -> None:
    try:
        _CALLS[name](held)
    except nile.DatabaseClosed as error:
        expect("close()" in str(error) and ";" in str(error), f"{name}: {error}")
        return
    raise Wrong(f"{name} answered after close()")


FAULT = Fault(
    "closed", "every method and iterator after close()", "one sentence; answers given before are whole",
    attempt, control, full=20 * len(_CALLS), small=len(_CALLS),
)  # fmt: skip
