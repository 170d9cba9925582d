"""Kernels compiled before anybody waits for them: small queries of every usual kind, each kind in its own process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from nile.base.machine import core_count
from nile.engine.database import Database
from nile.preferences.budget import Budget
from nile.summaries.errors import ConfigError

if TYPE_CHECKING:
    from nile.answers.join_query import JoinQuery

__all__ = ["KINDS", "warm"]

_ROWS, _KEYS, _WINDOW = 2_000, 100, 50.0
_LOOK = 0.05  # seconds between looks at who is done
_BUDGET = Budget(fraction=0.2)


def warm(processes: int | None = None) -> Iterator[tuple[str, bool]]:
    """Compile what the queries of `KINDS` need, in as many processes as there are cores; (kind, whether it ran).

    About a minute of two cores the first time, a few seconds where all is kept.  Raises ConfigError for no process.
    """
    most = core_count() if processes is None else processes
    if most < 1:
        raise ConfigError(f"nile.engine.warming.warm: needed one process or more; got {processes}")
    ahead = list(KINDS)
    running: dict[str, subprocess.Popen[bytes]] = {}
    try:
        while ahead or running:
            while ahead and len(running) < most:
                kind = ahead.pop(0)
                running[kind] = subprocess.Popen(
                    [sys.executable, "-m", __name__, kind],
                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                    env={**os.environ, "NILE_COSTS": "machine"},
                )  # fmt: skip
            for kind in [kind for kind, process in running.items() if process.poll() is not None]:
                yield kind, running.pop(kind).returncode == 0
            time.sleep(_LOOK)
    finally:
        for process in running.values():
            process.terminate()
            process.wait()


def _database() -> Database:
    """Two streams of whole numbers, times of seconds: the types that most streams have inside."""
    rng = np.random.default_rng(0)
    database = Database()
    for name in "ab":
        columns = {
            "at": np.sort(rng.uniform(0, 10 * _WINDOW, _ROWS)),
            "item": rng.integers(0, _KEYS, _ROWS),
            "price": rng.uniform(0, 10, _ROWS),
        }
        database.register(name, columns, time="at")
    return database


def _joins(database: Database) -> JoinQuery:
    return database.join("a", "b", on="item", window=_WINDOW)


def _exact(database: Database) -> None:
    for what in ("a.price, b.price AS other", "count(*) AS n"):
        database.sql(f"SELECT {what} FROM a, b WHERE a.item = b.item WINDOW {_WINDOW:g}").to_arrow()
    database.sql(f"SELECT a.item, b.price FROM a LEFT JOIN b ON a.item = b.item WINDOW {_WINDOW:g}").to_arrow()


def _standing(database: Database) -> None:
    database.sql(f"SELECT item, count(*) AS n, avg(price) AS p FROM a GROUP BY item WINDOW {_WINDOW:g}").to_arrow()
    database.sql(f"SELECT item, median(price) AS p, max(price) AS m FROM a GROUP BY item WINDOW {_WINDOW:g}").to_arrow()


def _approximate(database: Database) -> None:
    for preference in ("desc", "weighted", "asc"):
        _joins(database).prefer(preference).run(budget=_BUDGET).to_arrow()
    database.aggregate("a", {"n": "count(*)", "p": "avg(price)"}, by="item").run(budget=_BUDGET).to_arrow()


def _operator(database: Database) -> None:
    """The operator that takes tuples one by one: fixed prices, standing and live queries, summaries."""
    for preference in ("desc", "weighted", "asc"):
        for guide in ("countsketch", "directory"):
            _joins(database).prefer(preference).guided_by(guide).using(costs="engine").run(budget=_BUDGET).to_arrow()


KINDS: Mapping[str, Callable[[Database], None]] = {
    "joins tuple by tuple": _operator,
    "exact joins": _exact,
    "joins and aggregates under a budget": _approximate,
    "exact groups in windows": _standing,
}
"""What is run, the longest first, by name."""


if __name__ == "__main__":
    with _database() as database:
        KINDS[sys.argv[1]](database)
