"""Relations that change, pipelines, views, shared plans, rows taken back: cut into, and killed, at any place.

A kill at a place leaves the files that there are then: a copy of the store's folder, made there, has to open as of the
checkpoint before the change or as of one that the change as a whole writes, and to go on from its offsets.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from nile.execution.live.live import Live
from nile.experiments.faults.fault import Fault, expect, generator
from nile.experiments.faults.interruption import TRIES, Draw, cut_into, undefended
from nile.experiments.faults.places import at_place
from nile.experiments.faults.scene import Scene, differing, rows
from nile.summaries.errors import NileError

__all__ = ["FLOWING", "KILLED", "killed", "opened"]

_VIEWS = (
    "SELECT k, count(*) AS n FROM a GROUP BY k WINDOW '4 s'",
    "SELECT k, sum(n) AS n FROM a GROUP BY k WINDOW '3 s'",
)
_NAMED = {
    "big": "SELECT k, n FROM (SELECT k, sum(n) AS n FROM a [RANGE '4 s'] GROUP BY k) q WHERE k > 2",
    "small": "SELECT k, n + 1 AS m FROM (SELECT k, sum(n) AS n FROM a [RANGE '4 s'] GROUP BY k) q WHERE k < 4",
    "priced": "SELECT k, sum(w) AS w FROM a JOIN p USING (k) GROUP BY k WINDOW '4 s'",
    "seen": "SELECT count(*) AS n FROM v",
    "after": "SELECT k, count(*) AS n FROM c GROUP BY k WINDOW '5 s'",
}
"""The first two run on one plan."""


Change = Callable[[Any], object]
_KILLS = 5
"""Changes of one attempt, each with a copy that is opened."""


class Flowing(Scene):
    """A scene with a view v, a stream c that a query fills, and queries over all of them."""

    def __init__(self, store: Path | None) -> None:
        super().__init__(("windowed",), store=store, polled=("windowed",))
        self.db.stream("c", [("t", "float64"), ("k", "int64")], time="t", lateness="5 s")
        self.db.sql("INSERT INTO c SELECT t, k FROM b WHERE n > 3")
        self.db.sql(f"CREATE MATERIALIZED VIEW v AS {_VIEWS[0]}")
        for name, text in _NAMED.items():
            self.told[name] = []
            self.standing[name] = self.db.subscribe(text, name=name, emit="changes")
        self.found_again()

    def found_again(self) -> None:
        super().found_again()
        self.told = {name: self.told.get(name, []) for name in self.standing}

    def state(self) -> dict[str, Any]:
        self.found_again()
        return super().state()


def _feed(scene: Flowing, stream: str) -> None:
    scene.push(stream, scene.next(stream))


def _signed(scene: Flowing, back: int) -> None:
    """Some rows go, others come, and the offset says so."""
    first = scene.next("a")
    data = rows(first)
    kept = [batch for _, batch in scene.db._live.get("a").kept(list(data))][-1]
    gone = {name: values[-1 - back :][:1].to_numpy() for name, values in zip(data, kept.columns, strict=True)}
    both = {name: np.concatenate([gone[name], data[name]]) for name in data}
    both["_sign"] = np.array([-1] + [1] * len(data["n"]), np.int8)
    scene.db.push("a", both, offset={"rows": first + 12})


def _deleted(scene: Flowing, k: int) -> None:
    scene.db.sql(f"DELETE FROM a WHERE k = {k} AND n % 5 = 1")


def _changed(scene: Flowing, text: str) -> None:
    scene.db.sql(text)


def _paused(scene: Flowing, name: str) -> None:
    active = "true" if scene.db.subscription(name).paused else "false"
    scene.db.sql(f"UPDATE nile_queries SET active = {active} WHERE name = '{name}' OR name = 'priced'")


def _view(scene: Flowing, at: int) -> None:
    if "u" in scene.db._names.entries:
        scene.db.sql("DROP MATERIALIZED VIEW u")
    else:
        scene.db.sql(f"CREATE MATERIALIZED VIEW u AS {_VIEWS[at]}")


def _replaced(scene: Flowing, at: int) -> None:
    scene.db.sql(f"CREATE OR REPLACE MATERIALIZED VIEW u AS {_VIEWS[at]}")


def _filled(scene: Flowing, name: str) -> None:
    if name in scene.db.subscriptions:
        scene.db.sql(f"DROP QUERY {name}")
    else:
        scene.db.sql("INSERT INTO c (t, k) SELECT t, 7 FROM b WHERE n > 5")


def _anew(scene: Flowing, filled: bool) -> None:
    if "x" not in scene.db._names.entries or not filled:
        scene.db.sql("CREATE OR REPLACE RELATION x (k BIGINT)")
    else:
        scene.db.sql(f"INSERT INTO x VALUES ({scene.next('a')})")


def _on(scene: Flowing) -> None:
    scene.db.advance((scene.next("a") - 6) / 5.0)


def _keep(scene: Flowing) -> None:
    if scene.store is not None:
        scene.db.checkpoint()


_CHANGES: tuple[Change, ...] = (
    *(partial(_feed, stream=stream) for stream in "aab"),
    *(partial(_signed, back=back) for back in (2, 3)),
    *(partial(_deleted, k=k) for k in (1, 3)),
    *(
        partial(_changed, text=text)
        for text in (
            "INSERT INTO p VALUES (2, 5), (1, 4)",
            "UPDATE p SET w = w + 1 WHERE k < 3",
            "DELETE FROM p WHERE k = 1",
        )
    ),
    *(partial(_paused, name=name) for name in ("big", "after")),
    *(partial(_view, at=at) for at in (0, 1)),
    *(partial(_replaced, at=at) for at in (0, 1)),
    *(partial(_filled, name=name) for name in ("c_1", "c_2")),
    *(partial(_anew, filled=filled) for filled in (False, True, True)),
    _on,
    _keep,
)


def _changes(rng: np.random.Generator) -> tuple[Change, list[Change]]:
    change = _CHANGES[int(rng.integers(len(_CHANGES)))]
    return change, [change]


def _attempt(seed: int) -> None:
    rng = generator("flowing", seed)
    with tempfile.TemporaryDirectory() as folder:
        stores = [Path(folder, name) for name in "xy"] if seed % 3 == 0 else [None, None]
        cut_into([Flowing(store) for store in stores], rng, seed, _changes)


def _control(seed: int) -> None:
    with undefended():
        for at in range(seed, seed + 12):
            _attempt(3 * at + 1)


def _killed(seed: int, draw: Draw = _changes) -> None:
    killed(generator("killed", seed), Flowing, draw)


def killed(
    rng: np.random.Generator,
    made: Callable[[Path], Any],
    draw: Draw,
    goes_on: Callable[[Any, Path], None] | None = None,
) -> None:
    """Changes of a store that is copied in the middle of each, as a kill leaves it: a copy opens as of a whole change.

    made: the scene of a store; goes_on: what a copy, opened, is asked further, with a second copy.  Raises Wrong.
    """
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder, "x")
        scene, peace = made(store), made(Path(folder, "y"))
        scene.db.checkpoint()
        peace.db.checkpoint()
        held = [_kept(peace)]
        for attempt in range(_KILLS):
            change, _ = draw(rng)
            before, places = _epoch(peace), at_place(partial(change, peace), None, _nothing)
            if _epoch(peace) != before:
                held.append(_kept(peace))
            copy = Path(folder, f"copy{attempt}")
            at = int(rng.integers(places))
            at_place(partial(change, scene), at, partial(shutil.copytree, store, copy), ("shutil.py", "scene.py"))
            if copy.exists():
                again = Path(folder, f"again{attempt}")
                if goes_on is not None:
                    shutil.copytree(copy, again)
                told = f"{_told(change)} killed at place {at}"
                found = _check_copy(type(scene), copy, Path(folder, "x.csv"), held[-2:], told)
                if goes_on is not None:
                    goes_on(found, again)
                found.db.close()
        scene.db.close()
        peace.db.close()


def _told(change: object) -> str:
    return f"{change.func.__name__} {change.keywords}" if isinstance(change, partial) else change.__name__  # type: ignore[attr-defined]


def _nothing() -> None:
    pass


def _epoch(scene: Scene) -> int:
    return int(scene.db._live._keeper.directory.epoch)  # type: ignore[union-attr]


def _kept(scene: Scene) -> dict[str, Any]:
    """All that the newest generation has, as of now: its checkpoint has just been written."""
    return {name: value for name, value in scene.state().items() if not name.startswith("told")}


def opened(kind: type[Scene], store: Path, goods: Path) -> Any:
    """The scene of a store that is there.  Raises NileError."""
    store.with_suffix(".csv").write_text(goods.read_text())
    scene = object.__new__(kind)
    scene.store, scene.standing, scene.told, scene.scheduler = store, {}, {}, None
    scene.reopen()
    return scene


def _check_copy(kind: type[Scene], copy: Path, goods: Path, held: list[dict[str, Any]], told: str) -> Any:
    """What a kill left opens as of one of the generations that there may be: its scene."""
    try:
        scene = opened(kind, copy, goods)
    except NileError as error:
        expect(False, f"{told}: the store does not open: {error}")
    state = _kept(scene)
    if all(differing(state, other) for other in held):
        expect(False, f"{told}: as of no whole change: {min((differing(state, other) for other in held), key=len)}")
    return scene


def _torn_control(seed: int) -> None:
    """Rows that go and rows that come as two changes, each kept by itself."""
    push = Live.push

    def apart(live: Live, name: str, data: Any, offset: Any = None) -> int:
        if isinstance(data, dict) and "_sign" in data:
            for sign in (-1, 1):
                some = data["_sign"] == sign
                push(live, name, {each: values[some] for each, values in data.items()}, offset if sign > 0 else None)
                live.checkpoint()
            return 0
        return push(live, name, data, offset)

    with mock.patch.object(Live, "push", apart):
        for at in range(seed, seed + 6):
            _killed(at, lambda _: (partial(_signed, back=2), []))


FLOWING = Fault(
    "flowing", f"{TRIES} changes of relations, views, pipelines each, cut into by a signal", "all of it, or nothing",
    _attempt, _control, full=200, small=1,
)  # fmt: skip
KILLED = Fault(
    "killed", f"{_KILLS} changes each of a store that is copied in the middle, as a kill leaves it", "a whole change",
    _killed, _torn_control, full=100, small=1,
)  # fmt: skip
