"""Standing queries on one plan: interrupts and misbehaving callbacks while they share it, join it and leave it."""

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
from nile.experiments.faults.scene import SHARED, Scene

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


def _read(scene: Scene) -> None:
    scene.standing[SHARED[-1]].poll()


def _kept(scene: Scene) -> None:
    scene.db.checkpoint()


_CHANGES: tuple[Callable[[Any], None], ...] = (
    *(_pushed,) * 6,
    _on,
    *(partial(_left, name=name) for name in SHARED[:2]),
    *(partial(_paused, name=name) for name in SHARED[1:3]),
    _read,
    _kept,
)


def _drawn(rng: np.random.Generator) -> tuple[Callable[[Any], None], list[Callable[[Any], None]]]:
    change = _CHANGES[int(rng.integers(len(_CHANGES)))]
    return change, [change]


def _attempt(seed: int) -> None:
    """Of even seeds changes that are cut into, a third of them under a scheduler, of odd ones callbacks."""
    if seed % 2:
        played(seed // 2, _ALL[seed // 2 % len(_ALL)], drop=False, among=SHARED)
        return
    with tempfile.TemporaryDirectory() as folder:
        scheduler = _SCHEDULERS[seed // 6 % len(_SCHEDULERS)] if seed % 6 == 2 else None
        scenes = [Scene(SHARED, store=Path(folder, name), polled=SHARED[-1:], scheduler=scheduler) for name in "xy"]
        sharers = len(scenes[0].standing[SHARED[0]].sharers)
        expect(sharers == len(SHARED), f"{sharers} queries of {len(SHARED)} run on one plan")
        cut_into(scenes, generator("shared", seed), seed, _drawn)


def _control(seed: int) -> None:
    told_at_once(seed, among=SHARED)


SHARING = Fault(
    "shared-plans", f"{TRIES} changes cut into, or a bad callback, while queries share a plan",
    "all of it, or nothing; others told all", _attempt, _control, full=600, small=6,
)  # fmt: skip
