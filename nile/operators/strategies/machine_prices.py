"""The prices of this machine: as `nile calibrate` has measured them, or else those shipped, at this machine's pace."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from nile.base.machine import processor
from nile.base.version import __version__
from nile.operators.strategies.prices import PRICES, Prices

__all__ = ["SHIPPED", "keep", "kept_at", "machine_prices", "pace", "paced"]

SHIPPED = "shipped"
"""What NILE_PRICES in the environment says for the shipped prices, whatever machine this is."""
_FIXED = ("start",)
"""Fields that are no measure of the machine."""
_STEPS = 1 << 18
_PACES = {"pass": 0.24, "gather": 1.05, "count": 1.1}
"""ns per element of three plain steps of numpy, where the shipped prices were measured."""
_ROUNDS = 3
_FURTHEST = 4.0


def kept_at() -> Path:
    """The file that keeps this machine's prices: in the user's cache, one to each version, shipped table and processor.

    A build whose table has other prices, or others' values, scales and keeps its own, and none overwrites another's.
    """
    base = os.environ.get("XDG_CACHE_HOME")
    home = Path(base) if base else Path(os.path.expanduser("~")) / ".cache"
    return home / "nile" / f"prices-{__version__}-{_mark(PRICES, processor(), os.cpu_count())}.json"


@lru_cache
def _mark(shipped: Prices, named: str, cores: int | None) -> str:
    told = json.dumps([asdict(shipped), platform.machine(), named, cores])
    return hashlib.blake2b(told.encode(), digest_size=8).hexdigest()


@lru_cache(maxsize=1)
def _found(path: Path) -> Prices:
    with suppress(OSError, ValueError, TypeError, KeyError):
        return read(json.loads(path.read_text("utf-8"))["prices"])
    prices = paced(pace())
    with suppress(OSError):
        keep(prices, path)
    return prices


def machine_prices() -> Prices:
    """The prices of this machine.  The first time a pace is measured, 20 ms of plain numpy, and kept.

    NILE_PRICES=shipped in the environment takes the shipped ones, which are the same everywhere.
    """
    return PRICES if os.environ.get("NILE_PRICES") == SHIPPED else _found(kept_at())


def keep(prices: Prices, path: Path | None = None) -> Path:
    """Write prices where they are found again.  Raises OSError."""
    path = kept_at() if path is None else path
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{os.getpid()}")
    part.write_text(json.dumps({"prices": asdict(prices)}, indent=1), "utf-8")
    part.replace(path)  # whole, or not there
    _found.cache_clear()
    return path


def read(given: dict[str, Any]) -> Prices:
    """Prices as `keep` has written them.  Raises TypeError, ValueError for what are none."""
    known = {field.name: getattr(PRICES, field.name) for field in fields(Prices)}
    if set(given) != set(known):
        raise ValueError("needed the prices of this version")
    taken: dict[str, Any] = {}
    for name, value in given.items():
        curve = isinstance(known[name], tuple)
        taken[name] = tuple((float(x), float(ns)) for x, ns in value) if curve else float(value)
        if not all(ns > 0.0 for _, ns in taken[name]) if curve else taken[name] < 0.0:
            raise ValueError(f"needed a price above 0 as {name}")
    return Prices(**taken)


def pace() -> float:
    """How many times dearer three plain steps of numpy are here than where the shipped prices were measured.

    Their geometric mean: a pass over memory, a gather from all over it, counting into a table.  20 ms.
    """
    rng = np.random.Generator(np.random.PCG64(1))
    values = rng.integers(0, 1 << 40, _STEPS)
    at = rng.permutation(_STEPS)
    slots = values & 0xFFFF
    steps: dict[str, Callable[[], Any]] = {
        "pass": lambda: (values + 1).max(),
        "gather": lambda: values[at],
        "count": lambda: np.bincount(slots, minlength=1 << 16),
    }
    ratios = []
    for name, run in steps.items():
        run()
        times = []
        for _ in range(_ROUNDS):
            began = time.thread_time_ns()
            run()
            times.append(time.thread_time_ns() - began)
        ratios.append(max(1.0, min(times)) / _STEPS / _PACES[name])
    return float(np.clip(np.exp(np.mean(np.log(ratios))), 1.0 / _FURTHEST, _FURTHEST))


def paced(times: float) -> Prices:
    """The shipped prices, so many times as dear."""
    changed: dict[str, Any] = {}
    for field in fields(Prices):
        value = getattr(PRICES, field.name)
        if field.name in _FIXED:
            continue
        changed[field.name] = tuple((x, times * ns) for x, ns in value) if isinstance(value, tuple) else times * value
    return replace(PRICES, **changed)
