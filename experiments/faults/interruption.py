"""Signals, SystemExit and memory that ends, at any place of whatever changes a database: all of it, or nothing."""

from __future__ import annotations

import contextlib
import signal
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from nile.base.interrupts import Interrupts
from nile.engine.connect import connect
from nile.execution.live.commits import Commits
from nile.experiments.faults.fault import Fault, Wrong, expect, generator
from nile.experiments.faults.places import at_place
from nile.experiments.faults.scene import Scene, differing, first_difference, rows
from nile.summaries.errors import DatabaseTorn, SqlError

__all__ = ["INTERRUPT", "TRIES", "Draw", "cut_into", "undefended"]

TRIES = 10
"""Changes that are cut into in one attempt."""

Step = Callable[[Scene], None]
Draw = Callable[[np.random.Generator], tuple[Callable[[Any], object], Sequence[Callable[[Any], object]]]]


class _Stop(SystemExit):
    """What a handler of SIGTERM raises."""


def _push(seed: int) -> tuple[Step, list[Step]]:
    def step(scene: Scene) -> None:
        scene.push("ab"[seed % 2], scene.next("ab"[seed % 2]))

    return step, [step]


def _parts(_: int) -> tuple[Step, list[Step]]:
    def whole(scene: Scene) -> None:
        first = scene.next("a")
        scene.db.push("a", iter([rows(first), rows(first + 12)]))

    def part(scene: Scene) -> None:
        scene.db.push("a", iter([rows(scene.next("a"))]))

    return whole, [part, part]


def _advance(_: int) -> tuple[Step, list[Step]]:
    def step(scene: Scene) -> None:
        scene.db.advance((scene.next("a") - 6) / 5.0)

    return step, [step]


def _poll(_: int) -> tuple[Step, list[Step]]:
    def step(scene: Scene) -> None:
        found = scene.standing["rows"].poll_numbered()
        expect(all(len(batch) for _, batch in found), "an empty batch of outputs")

    return step, [step]


def _subscribe(seed: int) -> tuple[Step, list[Step]]:
    name = ("self", "stored")[seed % 2]

    def step(scene: Scene) -> None:
        if name in scene.standing:
            scene.standing[name].close()
            del scene.standing[name]
        else:
            scene.subscribe(name, lambda _: None)

    return step, [step]


def _statement(seed: int) -> tuple[Step, list[Step]]:
    made, text = (
        ("extra", "CREATE SUMMARY extra ON a (n) WITH GRANULARITY '2 s' AND COLLAPSE (2, 2)"),
        ("other", "CREATE RELATION other FROM r"),
    )[seed % 2]
    kind = "SUMMARY" if made == "extra" else "RELATION"

    def step(scene: Scene) -> None:
        names = scene.db._names
        known = made in names.summaries or made in names.entries
        scene.db.sql(f"DROP {kind} {made}" if known else text)

    return step, [step]


def _stream(_: int) -> tuple[Step, list[Step]]:
    def step(scene: Scene) -> None:
        if "c" in scene.db.streams:
            scene.db.sql("DROP STREAM c")
        else:
            scene.db.stream("c", [("t", "float64")], time="t")

    return step, [step]


def _checkpoint(_: int) -> tuple[Step, list[Step]]:
    def step(scene: Scene) -> None:
        if scene.store is not None:
            scene.db.checkpoint()

    return step, [step]


_READ = (
    "SELECT k, count(*) AS c, sum(n) AS s FROM a GROUP BY k",
    "SELECT a.n, b.n AS m FROM a, b WHERE a.k = b.k WINDOW '3 s' WITH PREFERENCE desc BUDGET 50 %",
)


def _read(seed: int) -> tuple[Step, list[Step]]:
    def step(scene: Scene) -> None:
        scene.db.sql(_READ[seed % 2]).fetchall()

    return step, [step]


_CHANGES = (_push, _push, _push, _parts, _advance, _poll, _subscribe, _statement, _stream, _checkpoint, _read)


@contextlib.contextmanager
def undefended() -> Iterator[None]:
    """Nile without what keeps its changes whole, for controls."""
    with (
        mock.patch.object(Interrupts, "__enter__", lambda self: self),
        mock.patch.object(Interrupts, "__exit__", return_value=None),
        mock.patch.object(Commits, "_tear", return_value=None),
    ):
        yield


def _stops(*_: object) -> None:
    raise _Stop


def _fails() -> None:
    raise MemoryError("no more")


def _cut(rng: np.random.Generator, seed: int) -> tuple[Callable[[], object], tuple[str, ...]]:
    """What happens at the place, and the files that are spared it."""
    kind = rng.random()
    if seed % 7 == 3 and kind < 0.3:  # what tears ends the attempt
        return _fails, (
            "faults/scene.py",
            "base/interrupts.py",
            "live/commits.py",
            "threading.py",
            "contextlib.py",
        )
    number = signal.SIGTERM if kind > 0.8 else signal.SIGINT
    return lambda: signal.raise_signal(number), ("faults/scene.py",)  # who is interrupted before he has a query


def _attempt(seed: int) -> None:
    rng = generator("interrupt", seed)
    names = ["rows", "running", *rng.choice(["windowed", "distinct", "join", "desc", "weighted", "asc"], 1)]
    with tempfile.TemporaryDirectory() as folder:
        stores = [Path(folder, name) for name in "xy"] if seed % 5 == 0 else [None, None]
        scheduler = str(rng.choice(["fifo", "round-robin", "greedy", "chain"])) if seed % 3 == 1 else None
        scenes = [Scene(tuple(names), store=store, polled=("rows",), scheduler=scheduler) for store in stores]
        cut_into(scenes, rng, seed, _change)


def _change(rng: np.random.Generator) -> tuple[Step, list[Step]]:
    return _CHANGES[int(rng.integers(len(_CHANGES)))](int(rng.integers(2)))


def cut_into(
    scenes: Sequence[Any],
    rng: np.random.Generator,
    seed: int,
    draw: Draw,
) -> None:
    """Make changes to two equal scenes, cut into those of the first; after each it is as before it, or as the other.

    draw: a change, and the parts of it that are each made whole.  Raises Wrong.
    """
    before = signal.signal(signal.SIGTERM, _stops)
    try:
        _cut_into(scenes[0], scenes[1], rng, seed, draw)
    finally:
        signal.signal(signal.SIGTERM, before)


def _cut_into(scene: Any, peace: Any, rng: np.random.Generator, seed: int, draw: Draw) -> None:
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    for _ in range(TRIES):
        change, steps = draw(rng)
        states, places = [peace.state()], 0
        for step in steps:
            places += at_place(partial(step, peace), None, _fails)
            states.append(peace.state())
        happens, spared = _cut(rng, seed)
        at = int(rng.integers(places))
        try:
            at_place(partial(change, scene), at, happens, spared)
        except (KeyboardInterrupt, _Stop, MemoryError, SqlError):
            if scene.db._live.commits.torn:
                _check_torn(scene)
                return
        now = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
        expect(now == handlers, "the handlers of signals are not those that were there")
        try:
            scene.check_free()
        except Wrong as error:
            raise Wrong(f"{_told(change)} at place {at}: {error}") from None
        scene.found_again()
        state = scene.state()
        done = next((k for k, other in enumerate(states) if not differing(state, other)), None)
        if done is None:
            other = min(states, key=lambda each: len(differing(state, each)))
            parts = differing(state, other)
            first = first_difference(state.get(parts[0]), other.get(parts[0]))
            expect(False, f"{_told(change)} at place {at}: half done in {parts}, {parts[0]}{first}")
        for step in steps[done:]:
            step(scene)
        rest = differing(scene.state(), states[-1])
        expect(not rest, f"{_told(change)} at place {at}, gone on with: others in {rest}")
    _check_closing(scene, peace, rng)


def _told(change: object) -> str:
    if isinstance(change, partial):
        return f"{change.func.__name__} {change.keywords or ''}".rstrip()
    return str(getattr(change, "__qualname__", change))


def _check_torn(scene: Scene) -> None:
    """Everything is refused, and nothing of it reaches the store."""
    for use in (lambda: scene.push("a", 0), lambda: scene.db.offset("a"), lambda: scene.db.sql("SELECT n FROM a")):
        try:
            use()
        except DatabaseTorn:
            continue
        expect(False, "a torn database was used")
    if scene.store is not None:
        epoch = scene.db._live._keeper.directory.epoch  # type: ignore[union-attr]
        scene.db.close()
        with connect(scene.store, read_only=True) as again:
            expect(again._live._keeper.directory.epoch == epoch, "a torn database wrote a checkpoint")  # type: ignore[union-attr]


def _check_closing(scene: Scene, peace: Scene, rng: np.random.Generator) -> None:
    """Interrupted while it closes, a store holds what there was; in memory everybody is told the end."""
    if scene.store is None:
        return
    places = at_place(peace.db.close, None, _fails)
    with contextlib.suppress(KeyboardInterrupt):
        at_place(scene.db.close, int(rng.integers(places)), lambda: signal.raise_signal(signal.SIGINT))
    scene.db.close()
    for each in (scene, peace):
        each.reopen()
    rest = differing(scene.state(), peace.state())
    expect(not rest, f"opened again after an interrupted close: others in {rest}")
    scene.db.close()
    peace.db.close()


def _control(seed: int) -> None:
    """Pushes that are interrupted, with nothing to keep them whole."""
    with undefended():
        for at in range(seed, seed + 12):
            _attempt(2 * at + 1)


INTERRUPT = Fault(
    "interrupt", f"{TRIES} changes each, cut into by a signal or by memory that ends", "all of it, or nothing",
    _attempt, _control, full=1_000, small=3,
)  # fmt: skip
