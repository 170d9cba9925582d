"""Standing queries on one plan, or a part of one: interrupts and misbehaving callbacks while they join and leave it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from nile.experiments.faults.changes.callbacks import MISBEHAVIOUR, REENTRANT, played, told_at_once
from nile.experiments.faults.fault import Fault, expect, generator
from nile.experiments.faults.interruption import TRIES, cut_into
from nile.experiments.faults.scene import PARTS, SHARED, Scene

__all__ = ["SHARING"]

_ALL = (*MISBEHAVIOUR, *REENTRANT)
_SCHEDULERS = ("fifo", "round-robin", "greedy", "chain")


def _pushed(scene: Scene) -> None:
    scene.push("a", scene.next("a"))


def _on(scene: Scene) -> None:
    scene.db.advance((scene.next("a") - 6) / 5.0)


def _left(scene: Scene, name: str) -> None:
    """One leaves the plan, or runs by itself until it can join it."""
    if name in scene.standing:
        scene.standing[name].close()
        del scene.standing[name]
    else:
        scene.subscribe(name, lambda _: None)


def _paused(scene: Scene, name: str) -> None:
    one = scene.standing.get(name)
    if one is not None:
        (one.resume if one.paused else one.pause)()


def _read(scene: Scene, name: str) -> None:
    scene.standing[name].poll()


def _kept(scene: Scene) -> None:
    scene.db.checkpoint()


def _changes(among: tuple[str, ...]) -> tuple[Callable[[Any], None], ...]:
    return (
        *(_pushed,) * 6,
        _on,
        *(partial(_left, name=name) for name in among[:2]),
        *(partial(_paused, name=name) for name in among[1:3]),
        partial(_read, name=among[-1]),
        _kept,
    )


def _drawn(among: tuple[str, ...], rng: np.random.Generator) -> tuple[Callable[[Any], None], list[Any]]:
    changes = _changes(among)
    change = changes[int(rng.integers(len(changes)))]
    return change, [change]


def _attempt(seed: int) -> None:
    """Of even seeds changes that are cut into, a third of them under a scheduler, a third with queries that share parts
    of plans; of odd ones callbacks, half of them of such queries.
    """
    if seed % 2:
        among = PARTS if seed // 2 // len(_ALL) % 2 else SHARED
        played(seed // 2, _ALL[seed // 2 % len(_ALL)], drop=False, among=among)
        return
    among = SHARED if seed % 6 else PARTS
    with tempfile.TemporaryDirectory() as folder:
        scheduler = _SCHEDULERS[seed // 6 % len(_SCHEDULERS)] if seed % 6 == 2 else None
        scenes = [Scene(among, store=Path(folder, name), polled=among[-1:], scheduler=scheduler) for name in "xy"]
        for scene in scenes:
            _pushed(scene)
        one = scenes[0].standing[among[0]]
        sharers = len(one.sharers if among is SHARED else one.tuple_sharers)
        expect(sharers == len(among), f"{sharers} queries of {len(among)} share what they can")
        cut_into(scenes, generator("shared", seed), seed, partial(_drawn, among))


def _control(seed: int) -> None:
    told_at_once(seed, among=SHARED)


SHARING = Fault(
    "shared-plans", f"{TRIES} changes cut into, or a bad callback, while queries share a plan or a part",
    "all of it, or nothing; others told all", _attempt, _control, full=600, small=6,
)  # fmt: skip
