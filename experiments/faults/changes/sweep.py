"""Ctrl-C at every place of a push: none is drawn, each of them is cut into, for every kind of query and database.

CPython runs the handler of a signal only at some instructions (`places.py`); one that comes at any other instruction
runs at the next of these, so a sweep over them is a sweep over all.
"""

from __future__ import annotations

import contextlib
import signal
import tempfile
from functools import partial
from pathlib import Path

from nile.experiments.faults.fault import Fault, expect
from nile.experiments.faults.interruption import undefended
from nile.experiments.faults.places import at_place
from nile.experiments.faults.scene import QUERIES, SHARED, Scene, differing

__all__ = ["STRIDE", "SWEEP", "attempted_places"]

STRIDE = 32
"""Attempts that share the places of one kind of push: the first takes places 0, 32, 64, ..., the second 1, 33, ..."""

_OF_BOTH = ("join", "alone", "desc", "weighted", "asc")
_SCHEDULED = (("running", "fifo"), ("join", "round-robin"), ("alone", "greedy"), ("shared", "chain"))
_KINDS: tuple[tuple[str, str, bool, str | None], ...] = (
    *((name, "a", stored, None) for name in (*QUERIES, "shared") for stored in (False, True)),
    *((name, "b", False, None) for name in _OF_BOTH),
    *((name, "a", at % 2 == 1, scheduler) for at, (name, scheduler) in enumerate(_SCHEDULED)),
)
"""(query, stream that is pushed to, whether there is a store, scheduler)."""


def _scene(name: str, store: Path | None, scheduler: str | None) -> Scene:
    names = SHARED if name == "shared" else ("rows", name) if name != "rows" else ("rows", "running")
    return Scene(names, store=store, polled=names[:1], scheduler=scheduler)


def attempted_places(seed: int, most: int | None = None) -> int:
    """Cut into a push at each `STRIDE`-th place, from seed // kinds on; how many there were.  Raises Wrong.

    most: places after which to stop.
    """
    name, stream, stored, scheduler = _KINDS[seed % len(_KINDS)]
    at, tries = seed // len(_KINDS) % STRIDE, 0
    told = f"a push to '{stream}' with '{name}'{' and a store' if stored else ''}"
    told += f" under {scheduler}" if scheduler else ""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as ends:
        scene, peace = (_scene(name, Path(folder, each) if stored else None, scheduler) for each in "xy")
        for each in (scene, peace):
            ends.callback(each.db.close)
        within = True
        while within and tries != most:
            if stream == "b":  # its partner keeps pace
                for each in (scene, peace):
                    each.push("a", each.next("a"))
            first = peace.next(stream)
            peace.push(stream, first)
            within = _cut(scene, stream, first, at, f"{told}, place {at}")
            _alike(scene, peace, stream, f"{told}, place {at}")
            at, tries = at + STRIDE, tries + within
        rest = differing(scene.state(), peace.state())
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


def _alike(scene: Scene, peace: Scene, stream: str, told: str) -> None:
    """What is quickly looked at after each place: accounting, outputs, and what callbacks were told."""
    accounting = scene.db.accounting(stream)
    accounting.check()
    expect(accounting == peace.db.accounting(stream), f"{told}: {accounting}")
    for name, one in scene.standing.items():
        other = peace.standing[name]
        expect(one.outputs == other.outputs, f"{told}: '{name}' has {one.outputs} outputs of {other.outputs}")
        heard = scene.told[name] == peace.told[name]
        expect(heard, f"{told}: '{name}' was told {len(scene.told[name])} of {len(peace.told[name])} outputs")


def _control(seed: int) -> None:
    """The same pushes with nothing to keep them whole."""
    with undefended():
        attempted_places(seed)


SWEEP = Fault(
    "every-place", f"pushes of {len(_KINDS)} kinds, cut into at every place at which CPython raises Ctrl-C",
    "all of it, or nothing", attempted_places, _control, full=len(_KINDS) * STRIDE, small=2,
)  # fmt: skip
"""~90 places in each attempt."""
