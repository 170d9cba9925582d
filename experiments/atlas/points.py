"""The points of a run: what has to be measured, under which key it is kept, and which share their preparation."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from nile.experiments.atlas.form import Experiment, Panel
from nile.experiments.atlas.kinds import Data, Kind, Options
from nile.summaries.package import NILE, files_below

__all__ = ["Group", "Point", "Record", "code_version", "grouped", "points_of"]

Record = dict[str, float | None]
"""metric -> figure, None where it does not exist."""


@dataclass(frozen=True, slots=True)
class Point:
    """One method at one place of one panel under one seed.  key: what names its result: options, seed, data, code."""

    experiment: str
    panel: Panel
    method: str
    x: Any
    seed: int
    options: Options
    key: str


@dataclass(frozen=True, slots=True)
class Group:
    """Points that share what their kind prepares: measured one after another, by one process.  key -> options."""

    kind: Kind
    seed: int
    data: Data | None
    points: dict[str, Options]


def points_of(experiment: Experiment, data: Data | None, *, quick: bool) -> Iterator[Point]:
    """Every point in a fixed order.  Panels on real data are left out where there is none."""
    for panel in experiment.panels_of():
        real = dict(panel).get("data") == "real"
        if real and data is None:
            continue
        digest = data.identity if real and data is not None else ""
        for method in experiment.methods.values():
            for x in experiment.xs(quick):
                if x in method.not_at:
                    continue
                options = experiment.options(panel, method, x, quick=quick)
                for seed in experiment.seeds_of(quick):
                    key = _key(experiment.kind, options, seed, digest)
                    yield Point(experiment.name, panel, method.name, x, seed, options, key)


def grouped(points: Iterable[Point], kinds: dict[str, Kind], data: Data | None) -> list[Group]:
    """Points by what they prepare; one that several experiments have in common is measured once.

    kinds: of each experiment, by its name.
    """
    groups: dict[str, Group] = {}
    for point in points:
        kind = kinds[point.experiment]
        shared = {name: getattr(point.options, name) for name in kind.prepares}
        real = shared.get("data") == "real"
        name = json.dumps([kind.name, point.seed, shared], sort_keys=True)
        group = groups.setdefault(name, Group(kind, point.seed, data if real else None, {}))
        group.points[point.key] = point.options
    return list(groups.values())


def _key(kind: Kind, options: Options, seed: int, digest: str) -> str:
    told = [kind.name, options.model_dump(), seed, digest, code_version()]
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:24]


@cache
def code_version() -> str:
    """A digest of all that is Nile's code: a result made by other code is not taken up again.  Some 20 ms."""
    digest = hashlib.sha256()
    for file in files_below(NILE):
        if file.suffix == ".py":
            digest.update(file.relative_to(NILE).as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]
