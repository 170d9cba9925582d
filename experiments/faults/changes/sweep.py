"""Ctrl-C at every place of a push: none is drawn, each of them is cut into, for every kind of query and database.

CPython runs the handler of a signal only at some instructions (`places.py`); one that comes at any other instruction
runs at the next of these, so a sweep over them is a sweep over all.
"""

from __future__ import annotations

import contextlib
import functools
import signal
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from nile.experiments.faults.fault import Fault, expect
from nile.experiments.faults.interruption import undefended
from nile.experiments.faults.places import at_place
from nile.experiments.faults.scene import QUERIES, SHARED, Scene, differing
from nile.streams.accounting import Accounting

__all__ = ["STRIDE", "SWEEP", "attempted_places"]

STRIDE = 32
"""Attempts that share the places of one kind of push: the first takes places 0, 32, 64, ..., the second 1, 33, ..."""

_OF_BOTH = ("join", "alone", "desc", "weighted", "asc")
_SCHEDULED = (("running", "fifo"), ("join", "round-robin"), ("alone", "greedy"), ("shared", "chain"))
Kind = tuple[str, str, bool, str | None]

_KINDS: tuple[Kind, ...] = (
    *((name, "a", stored, None) for name in (*QUERIES, "shared") for stored in (False, True)),
    *((name, "b", False, None) for name in _OF_BOTH),
    *((name, "a", at % 2 == 1, scheduler) for at, (name, scheduler) in enumerate(_SCHEDULED)),
)
"""(query, stream that is pushed to, whether there is a store, scheduler)."""
_ROUND = 8  # pushes


def _scene(name: str, store: Path | None, scheduler: str | None) -> Scene:
    names = SHARED if name == "shared" else ("rows", name) if name != "rows" else ("rows", "running")
    return Scene(names, store=store, polled=names[:1], scheduler=scheduler)


class _Peace:
    """A scene of one kind that nobody cuts into: what is looked at after each of its pushes, and all of it at rounds.

    All attempts of a kind in a process are compared with the same one; it is pushed to as they need it.
    """

    def __init__(self, kind: Kind) -> None:
        name, self._stream, stored, scheduler = kind
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self._scene = _scene(name, Path(self._folder.name, "peace") if stored else None, scheduler)
        self._looks: list[tuple[Accounting, dict[str, tuple[int, int]]]] = []
        self._states: dict[int, dict[str, Any]] = {}

    @property
    def told(self) -> dict[str, list[dict[str, Any]]]:
        """What callbacks were told, in all."""
        return self._scene.told

    def after(self, pushes: int) -> tuple[Accounting, dict[str, tuple[int, int]]]:
        """(accounting, {query: (outputs, how many of these its callback was told)})."""
        while len(self._looks) < pushes:
            pushed(self._scene, self._stream)
            counts = {name: (one.outputs, len(self.told[name])) for name, one in self._scene.standing.items()}
            self._looks.append((self._scene.db.accounting(self._stream), counts))
            if len(self._looks) % _ROUND == 0:
                self._states[len(self._looks)] = self._scene.state()
        return self._looks[pushes - 1]

    def state(self, pushes: int) -> dict[str, Any]:
        """All there is after so many pushes, of which there is a whole number of rounds."""
        self.after(pushes)
        return self._states[pushes]


_peace = functools.cache(_Peace)


def pushed(scene: Scene, stream: str) -> None:
    """The next rows; those of b after as many of its partner."""
    if stream == "b":
        scene.push("a", scene.next("a"))
    scene.push(stream, scene.next(stream))


def attempted_places(seed: int, most: int | None = None) -> int:
    """Cut into a push at each `STRIDE`-th place, from seed // kinds on; how many there were.  Raises Wrong.

    most: places after which to stop.
    """
    kind = name, stream, stored, scheduler = _KINDS[seed % len(_KINDS)]
    at, tries, pushes = seed // len(_KINDS) % STRIDE, 0, 0
    told = f"a push to '{stream}' with '{name}'{' and a store' if stored else ''}"
    told += f" under {scheduler}" if scheduler else ""
    peace = _peace(kind)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as ends:
        scene = _scene(name, Path(folder, "x") if stored else None, scheduler)
        ends.callback(scene.db.close)
        within = True
        while within and tries != most:
            if stream == "b":  # its partner keeps pace
                scene.push("a", scene.next("a"))
            within = _cut(scene, stream, scene.next(stream), at, f"{told}, place {at}")
            pushes += 1
            _alike(scene, peace, stream, pushes, f"{told}, place {at}")
            at, tries = at + STRIDE, tries + within
        while pushes % _ROUND:
            pushed(scene, stream)
            pushes += 1
        rest = differing(scene.state(), peace.state(pushes))
        expect(not rest, f"{told}, {tries} places up to {at - STRIDE}: others in {rest}")
    return tries


def _cut(scene: Scene, stream: str, first: int, at: int, told: str) -> bool:
    """Push, with a signal at a place, and again if nothing of it was done; whether the push has such a place."""
    passed = at + 1
    with contextlib.suppress(KeyboardInterrupt):
        passed = at_place(
            partial(scene.push, stream, first), at, lambda: signal.raise_signal(signal.SIGINT), ("faults/scene.py",)
        )
    done = scene.next(stream) != first
    expect(scene.db.offset(stream) == {"rows": first + 12 * done}, f"{told}: rows and offset are not of one push")
    if not done:
        scene.push(stream, first)
    return passed > at


def _alike(scene: Scene, peace: _Peace, stream: str, pushes: int, told: str) -> None:
    """What is quickly looked at after each place: accounting, outputs, and what callbacks were told since the last."""
    accounting = scene.db.accounting(stream)
    accounting.check()
    other, counts = peace.after(pushes)
    _, before = peace.after(max(1, pushes - 1))
    expect(accounting == other, f"{told}: {accounting}")
    for name, one in scene.standing.items():
        outputs, heard = counts[name]
        expect(one.outputs == outputs, f"{told}: '{name}' has {one.outputs} outputs of {outputs}")
        new = slice(before[name][1] if pushes > 1 else 0, heard)
        alike = len(scene.told[name]) == heard and scene.told[name][new] == peace.told[name][new]
        expect(alike, f"{told}: '{name}' was told {len(scene.told[name])} of {heard} outputs")


def _control(seed: int) -> None:
    """The same pushes with nothing to keep them whole."""
    with undefended():
        attempted_places(seed)


SWEEP = Fault(
    "every-place", f"pushes of {len(_KINDS)} kinds, cut into at every place at which CPython raises Ctrl-C",
    "all of it, or nothing", attempted_places, _control, full=len(_KINDS) * STRIDE, small=2,
)  # fmt: skip
"""~90 places in each attempt."""
