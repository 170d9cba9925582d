"""Standing queries of one database beside each in a database of its own, to which the same is done."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

import nile
from nile.execution.envelopes import packed

SCHEMA = [("t", pa.float64()), ("k", pa.string()), ("v", pa.float64())]
WIDE = [*SCHEMA, ("w", pa.int64())]


def opened(path: Path | None = None, schema: Sequence[Any] = SCHEMA) -> nile.Database:
    """A database with live streams `a` and `b`."""
    db = nile.connect(path, **({} if path is None else {"checkpoint": None}))
    for name in "ab":
        db.stream(name, schema, time="t")
    return db


def told(standing: Any) -> list[tuple[int, dict[str, Any]]]:
    """(ordinal, row) of what it has found."""
    return [(first + i, row) for first, batch in standing.poll_numbered() for i, row in enumerate(batch.to_pylist())]


def rows(draw: random.Random, at: dict[str, float], name: str, schema: Sequence[Any] = SCHEMA) -> dict[str, list[Any]]:
    """A few tuples that come next to a stream."""
    times = []
    for _ in range(draw.choice([1, 5, 40])):
        at[name] += draw.choice([0.0, 0.1, 0.5])
        times.append(at[name])
    made = {
        "k": lambda: f"k{draw.randint(0, 4)}",
        "v": lambda: float(draw.randint(0, 9)),
        "w": lambda: draw.randint(0, 3),
    }
    return {"t": times} | {column: [made[column]() for _ in times] for column, _ in schema[1:]}


class Alone:
    """One query in a database of its own, to which everything is done that is done to the shared one."""

    def __init__(
        self, path: Path, earlier: list[tuple[Any, ...]], text: str, how: dict[str, Any], schema: Sequence[Any]
    ) -> None:
        self.path = path
        self.db = opened(path, schema)
        for step in earlier:
            self.do(step)
        self.standing = self.db.subscribe(text, name="q", **how)

    def do(self, step: tuple[Any, ...]) -> None:
        """One step more."""
        match step:
            case ("restart",):
                self.db.close()
                self.db = nile.connect(self.path, checkpoint=None)
                if "q" in self.db._live.standing.named():
                    self.standing = self.db.subscription("q")
            case ("advance", at):
                self.db.advance(at)
            case ("say", text):
                self.db.sql(text)
            case _:
                self.db.push(*step)


def driven(
    seed: int,
    queries: Sequence[tuple[str, dict[str, Any]]],
    folder: Path,
    shares: Callable[[Any], int],
    *,
    schema: Sequence[Any] = SCHEMA,
    deletes: bool = False,
    steps: int = 60,
) -> int:
    """The most that `shares` gives of any query, while they come, go, pause and restart, and rows come and, `deletes`,
    are taken back: each tells, row by row, what it does alone, and holds the same bytes.
    """
    draw = random.Random(seed)
    db, at, earlier = opened(folder / "all", schema), {"a": 0.0, "b": 0.0}, []
    running: dict[str, Alone] = {}
    most = 0
    for number in range(steps):
        what = draw.random()
        if number < 4 or (what < 0.2 and len(running) < 9):
            text, how = draw.choice(queries)
            name = f"q{number}"
            running[name] = Alone(folder / name, earlier, text, how, schema)
            db.subscribe(text, name=name, **how)
        elif what < 0.25 and running:
            name = draw.choice(list(running))
            one, own = db.subscription(name), running.pop(name)
            own.standing.close()
            one.close()
            assert told(one) == told(own.standing)
            own.db.close()
        elif what < 0.32 and running:
            one = db.subscription(draw.choice(list(running)))
            (one.resume if one.paused else one.pause)()
        else:
            if what < 0.37:
                step: tuple[Any, ...] = ("restart",)
                db.close()
                db = nile.connect(folder / "all", checkpoint=None)
            elif what < 0.45:
                at["a"] = at["b"] = max(at.values()) + 1.0
                step = ("advance", at["a"])
                db.advance(at["a"])
            elif deletes and what < 0.55:
                step = ("say", f"DELETE FROM {draw.choice('ab')} WHERE k = 'k{draw.randint(0, 4)}' AND v < 4")
                db.sql(step[1])
            else:
                name = draw.choice("ab")
                step = (name, rows(draw, at, name, schema))
                db.push(*step)
            earlier.append(step)
            for each in running.values():
                each.do(step)
        for name, own in running.items():
            one = db.subscription(name)
            most = max(most, shares(one))
            if not one.paused:
                assert told(one) == told(own.standing), (number, own.standing.query)
    for name, own in running.items():
        db.subscription(name).resume()
        assert told(db.subscription(name)) == told(own.standing)
        mine, theirs = db.subscription(name).capture(), own.standing.capture()
        assert packed("q", mine) == packed("q", theirs)
        own.db.close()
    db.close()
    return most
