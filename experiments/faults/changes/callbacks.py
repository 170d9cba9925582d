"""Callbacks that raise, stop, take their leave or go back into the database, beside others that must not notice."""

from __future__ import annotations

import contextlib
import signal
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from nile.experiments.faults.fault import Fault, expect, generator
from nile.experiments.faults.interruption import undefended
from nile.experiments.faults.scene import QUERIES, Scene, differing
from nile.summaries.errors import NileError

__all__ = ["CALLBACKS", "MISBEHAVIOUR", "REENTRANCE", "REENTRANT", "played", "told_at_once"]

Change = tuple[str, tuple[Any, ...]]


class _Own(BaseException):
    """No Exception, and of nobody's."""


class _Play:
    """A scene to which changes are made, also by its callbacks, and the order in which they were made."""

    def __init__(
        self,
        seed: int,
        misbehave: Callable[[_Play, pa.RecordBatch], object],
        store: Path | None,
        names: Sequence[str],
    ) -> None:
        self.rng = generator("callbacks", seed)
        self.bad = names[seed // 10 % len(names)]
        others = [name for name in names if name != self.bad]
        self.names = (
            others[seed % len(others)],
            self.bad,
            others[(seed + (4 if len(others) > 4 else 1)) % len(others)],
        )
        self.store = store
        self.log: list[Change] = []
        self.calls = 0
        self.began = False

        def callback(batch: pa.RecordBatch) -> None:
            self.calls += 1
            if self.began and self.calls <= 3:
                misbehave(self, batch)

        self.scene = Scene(self.names, store=store, callbacks={self.bad: callback}, polled=self.names[2:])
        self.began, self.calls = True, 0

    def do(self, what: str, *given: Any) -> Any:
        """Make a change, and note it: what it makes callbacks do comes after it."""
        self.log.append((what, given))
        try:
            return _done(self.scene, what, given)
        except NileError:
            self.log.remove((what, given))  # refused
            raise

    def in_peace(self, store: Path | None) -> Scene:
        """A scene to which the same was done, one after the other, while callbacks do nothing."""
        scene = Scene(self.names, store=store, polled=self.names[2:])
        for what, given in self.log:
            _done(scene, what, given)
        return scene


def _done(scene: Scene, what: str, given: tuple[Any, ...]) -> Any:
    if what == "push":
        return scene.push(*given)
    if what == "close":
        return scene.standing[given[0]].close()
    if what == "subscribe":
        return scene.subscribe(given[0], lambda _: None)
    return getattr(scene.db, what)(*given)


def _raises(error: type[BaseException]) -> Callable[[_Play, pa.RecordBatch], object]:
    def misbehave(_: _Play, __: pa.RecordBatch) -> None:
        raise error("of a callback")

    return misbehave


def _signalled(_: _Play, __: pa.RecordBatch) -> None:
    signal.raise_signal(signal.SIGINT)


def _endless(play: _Play, batch: pa.RecordBatch) -> None:
    _endless(play, batch)


def _leaves(play: _Play, _: pa.RecordBatch) -> None:
    play.do("close", play.bad)


def _reads(play: _Play, batch: pa.RecordBatch) -> None:
    one = play.scene.standing[play.bad]
    expect(one.poll() == [], "a query with a callback was polled")
    expect(one.ordinal + len(batch) <= one.outputs, "an ordinal beyond the outputs")
    play.scene.db.sql("SELECT k, count(*) AS n FROM a GROUP BY k").fetchall()
    play.scene.db.accounting("a").check()


MISBEHAVIOUR: tuple[Callable[[_Play, pa.RecordBatch], object], ...] = (
    _raises(ValueError),
    _raises(KeyboardInterrupt),
    _raises(SystemExit),
    _raises(MemoryError),
    _raises(GeneratorExit),
    _raises(_Own),
    _signalled,
    _endless,
    _leaves,
    _reads,
)


def _pushes(stream: str) -> Callable[[_Play, pa.RecordBatch], object]:
    def misbehave(play: _Play, _: pa.RecordBatch) -> None:
        expect(play.do("push", stream, play.scene.next(stream)) >= 0, "a push that takes fewer than nothing")

    return misbehave


def _advances(stream: str | None) -> Callable[[_Play, pa.RecordBatch], object]:
    def misbehave(play: _Play, _: pa.RecordBatch) -> None:
        play.do("advance", play.scene.next("a") / 5.0 - 1.0, stream)

    return misbehave


def _subscribes(play: _Play, _: pa.RecordBatch) -> None:
    if name := next((name for name in QUERIES if name not in play.scene.standing), None):
        play.do("subscribe", name)


def _says(text: str) -> Callable[[_Play, pa.RecordBatch], object]:
    def misbehave(play: _Play, _: pa.RecordBatch) -> None:
        with contextlib.suppress(NileError):  # what a named query reads is refused, what is there already too
            play.do("sql", text)

    return misbehave


def _checkpoints(play: _Play, _: pa.RecordBatch) -> None:
    if play.store is not None:
        play.scene.db.checkpoint()


REENTRANT = (
    _pushes("a"),
    _pushes("b"),
    _advances("a"),
    _advances("b"),
    _advances(None),
    _subscribes,
    _says("CREATE SUMMARY more ON a (n) WITH GRANULARITY '2 s' AND COLLAPSE (2, 2)"),
    _says("DROP RELATION r"),
    _says("INSERT INTO p VALUES (2, 5)"),
    _says("UPDATE p SET w = w + 1 WHERE k < 3"),
    _says("DELETE FROM a WHERE n % 7 = 3"),
    _says("CREATE MATERIALIZED VIEW v AS SELECT k, count(*) AS n FROM a GROUP BY k WINDOW '3 s'"),
    _says("CREATE OR REPLACE RELATION more (k BIGINT)"),
    _checkpoints,
    _leaves,
)


def played(
    seed: int,
    misbehave: Callable[[_Play, pa.RecordBatch], object],
    *,
    drop: bool,
    among: Sequence[str] = tuple(QUERIES),
) -> None:
    """Pushes to a scene with one bad callback, then the same in peace: everybody else, and all state, is alike.

    among: the queries that there may be.  drop: drop stream a in the end.  Raises Wrong.
    """
    with tempfile.TemporaryDirectory() as folder:
        stores = [Path(folder, name) for name in "xy"] if seed % 3 == 0 else [None, None]
        play = _Play(seed, misbehave, stores[0], among)
        for stream in ("a", "b", "a", "b"):
            with contextlib.suppress(Exception, KeyboardInterrupt, SystemExit, GeneratorExit, _Own):
                play.do("push", stream, play.scene.next(stream))
        play.began = False
        play.do("advance", max(play.scene.next("a"), play.scene.next("b")) / 5.0 - 1.0)
        play.scene.check_free()
        peace = play.in_peace(stores[1])
        rest = differing(play.scene.state(), peace.state())
        expect(not rest, f"with a bad callback of '{play.bad}' others in {rest}")
        for name, one in play.scene.standing.items():
            told = len(play.scene.told[name])
            polled = name in play.names[2:]
            expect(polled or told == one.outputs, f"'{name}' was told {told} of {one.outputs} outputs")
        if drop and not play.scene.db.subscriptions:
            play.scene.db.sql("DROP STREAM a")
        if play.store is not None:
            _again(play.scene, peace)


def _again(scene: Scene, peace: Scene) -> None:
    """The store opens again, with everything."""
    for each in (scene, peace):
        each.db.close()
        each.reopen()
    rest = differing(scene.state(), peace.state())
    expect(not rest, f"opened again, others in {rest}")
    scene.db.close()
    peace.db.close()


def told_at_once(seed: int, among: Sequence[str] = tuple(QUERIES)) -> None:
    """A database that tells callbacks while a change is made, as each finds something, and stops at what they raise."""
    from nile.execution.live.outbox import Outbox

    hand_out = Outbox._hand_out

    def at_once(self: Outbox, batch: pa.RecordBatch) -> None:
        hand_out(self, batch)
        callback = self._callback
        if callback is not None and self._found:
            while self._found:
                found = self._found.popleft()
                self._handed += len(found)
                callback(found)

    rng = np.random.default_rng(seed)
    with undefended():
        Outbox._hand_out = at_once  # type: ignore[method-assign]
        try:
            for other in range(20):
                misbehave = (_raises(_Own), _pushes("a"))[int(rng.integers(2))]
                played(10 * (seed + other), misbehave, drop=False, among=among)
        finally:
            Outbox._hand_out = hand_out  # type: ignore[method-assign]


CALLBACKS = Fault(
    "callbacks", "ten kinds of misbehaviour in a callback of every kind of query", "others told all, state as in peace",
    lambda seed: played(seed, MISBEHAVIOUR[seed % len(MISBEHAVIOUR)], drop=False), told_at_once, full=1_000, small=20,
)  # fmt: skip
REENTRANCE = Fault(
    "re-entrance", "callbacks that push, advance, subscribe, close, drop, checkpoint", "as one after the other",
    lambda seed: played(seed, REENTRANT[seed % len(REENTRANT)], drop=True), told_at_once, full=1_000, small=20,
)  # fmt: skip
