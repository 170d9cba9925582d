"""Standing queries on one plan, or a part of one: interrupts and misbehaving callbacks while they join and leave it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from nile.experiments.faults.changes.callbacks import MISBEHAVIOUR, REENTRANT, played, told_at_once
from nile.experiments.faults.changes.flowing import killed, opened
from nile.experiments.faults.fault import Fault, expect, generator
from nile.experiments.faults.interruption import TRIES, cut_into
from nile.experiments.faults.scene import LEVELS, PARTS, SHARED, Scene, differing

__all__ = ["SHARED_KILLED", "SHARING"]

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


def _levelled(seed: int) -> tuple[str, ...]:
    """The queries of a seed, the oldest last of all in a third of them, the second in a third."""
    return *LEVELS[seed % 3 :], *LEVELS[: seed % 3]


def _scene(store: Path, among: tuple[str, ...], scheduler: str | None = None) -> Scene:
    scene = Scene(among, store=store, polled=among[-1:], scheduler=scheduler)
    _pushed(scene)
    return scene


def _attempt(seed: int) -> None:
    """Of even seeds changes that are cut into, a third of them under a scheduler, a third with queries that share parts
    of plans, a third of these level upon level; of odd ones callbacks, a third of them of queries that share parts, a
    third of such as share levels.
    """
    if seed % 2:
        among: tuple[str, ...] = (SHARED, PARTS, LEVELS)[seed // 2 // len(_ALL) % 3]
        played(seed // 2, _ALL[seed // 2 % len(_ALL)], drop=False, among=among)
        return
    among = SHARED if seed % 6 else PARTS if seed % 12 else _levelled(seed // 12)
    with tempfile.TemporaryDirectory() as folder:
        scheduler = _SCHEDULERS[seed // 6 % len(_SCHEDULERS)] if seed % 6 == 2 else None
        scenes = [_scene(Path(folder, name), among, scheduler) for name in "xy"]
        _shared(scenes[0], among)
        cut_into(scenes, generator("shared", seed), seed, partial(_drawn, among))


def _shared(scene: Scene, among: tuple[str, ...]) -> None:
    one = scene.standing[among[0]]
    if set(among) == set(LEVELS):
        sharers = len(scene.standing["joined"].part_sharers)
        levels = [len(each.plans) for each in scene.standing["few"].plan.nested]  # type: ignore[attr-defined]
        expect(levels == [5, 2], f"levels of {levels} queries, where one of 5 and one of 2 are")
    else:
        sharers = len(one.sharers if among is SHARED else one.tuple_sharers)
    expect(sharers == len(among), f"{sharers} queries of {len(among)} share what they can")


def _control(seed: int) -> None:
    told_at_once(seed, among=SHARED)


def _killed(seed: int, check: Callable[[np.random.Generator, Scene, Path], None] | None = None) -> None:
    """Kills between queries that share levels, leave, come back and pause."""
    among = _levelled(seed)
    rng = generator("shared-killed", seed)

    def made(store: Path) -> Scene:
        scene = _scene(store, among)
        _shared(scene, among)
        return scene

    killed(rng, made, partial(_drawn, among), partial(check or _goes_on, rng))


def _goes_on(rng: np.random.Generator, scene: Scene, copy: Path) -> None:
    """Of what comes after the kill a query finds the same when all the others are gone."""
    named = [name for name in LEVELS if name in scene.standing]
    if not named:
        return
    assert scene.store is not None
    alone = opened(Scene, copy, scene.store.with_suffix(".csv"))
    name = named[int(rng.integers(len(named)))]
    for other in named:
        if other != name:
            alone.standing.pop(other).close()
    for each in (scene, alone):
        if each.standing[name].paused:
            each.standing[name].resume()
        for _ in range(4):
            _pushed(each)
        _on(each)
    found, right = (
        [(at, batch.to_pylist()) for at, batch in each.standing[name].poll_numbered()] for each in (scene, alone)
    )
    expect(_numbered(found) == _numbered(right), f"after a kill '{name}' finds other rows than it does alone")
    ends = [{name: each.state()[f"query {name}"][1:]} for each in (scene, alone)]
    expect(not differing(*ends), f"after a kill '{name}' ends in another state than it does alone")
    alone.db.close()


def _numbered(found: list[tuple[int, list[dict[str, Any]]]]) -> list[tuple[int, str]]:
    """Each row with its number, however they came in batches."""
    return [(at + k, repr(row)) for at, batch in found for k, row in enumerate(batch)]


def _lost_control(seed: int) -> None:
    """Parts that begin empty where plans come to share them after a kill."""
    from nile.exact.pipeline.sources.part import Part

    def lost(rng: np.random.Generator, scene: Scene, copy: Path) -> None:
        with mock.patch.object(Part, "restore", return_value=None):
            _goes_on(rng, scene, copy)

    for at in range(seed, seed + 3):
        _killed(at, lost)


SHARING = Fault(
    "shared-plans", f"{TRIES} changes cut into, or a bad callback, while queries share a plan or parts of plans",
    "all of it, or nothing; others told all", _attempt, _control, full=600, small=6,
)  # fmt: skip
SHARED_KILLED = Fault(
    "shared-killed", "5 changes of queries with levels of parts in common, the store copied in the middle of each",
    "a whole change; each goes on as if alone", _killed, _lost_control, full=300, small=1,
)  # fmt: skip
