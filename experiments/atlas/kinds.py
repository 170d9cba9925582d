"""What can be measured: a kind of experiment names its options, its metrics, and how a point is measured.

A kind registers itself when its module is imported; `nile.experiments.atlas.measures` imports them all.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from nile.experiments.run.fields import Table

__all__ = ["Data", "Kind", "Metric", "Options", "kind_of", "kinds", "register"]


@dataclass(frozen=True, slots=True)
class Metric:
    """A figure of a point.  axis: what the vertical axis says.  unit: one of nile.report.wording.shown.

    short: its name inside a sentence.  better: 1 more is better, -1 less is, 0 neither.
    """

    title: str
    short: str
    axis: str
    unit: str
    better: int


@dataclass(frozen=True, slots=True)
class Data:
    """Real data: a file, how it makes two streams and what of it is used.  digest: SHA-256 of the file's bytes.

    left, right: conditions in SQL; key, time, value: columns; split: the column that tells several streams apart.
    """

    path: str
    digest: str
    left: str
    right: str
    key: str
    time: str
    value: str
    split: str

    @property
    def identity(self) -> str:
        """What figures on it depend on: its bytes and how they are read, wherever it lies."""
        return json.dumps([self.digest, self.left, self.right, self.key, self.time, self.value, self.split])


class Options(Table):
    """What decides a point but for its seed: a subclass a kind, every field with a default and a description.

    Two fields have a meaning for all kinds that have them: `data`, "synthetic" or "real", and `costs`, a cost table.
    """


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of experiment.

    prepares: the options that `prepare` looks at; points that agree in them and in the seed share what it returns.
    prepare(options, seed, data): data is None unless the option `data` is "real".
    measure(prepared, options, seed): metric name -> a finite float, or None where the figure does not exist.
    operator(options): what really runs, as text; two methods with the same one are the same method.
    by_clock: whether figures are times of this machine; such points run one at a time, with nothing beside them, and
    a seed is a round: methods take turns, and a curve is the median of the rounds.
    """

    name: str
    about: str
    options: type[Options]
    metrics: Mapping[str, Metric]
    prepares: tuple[str, ...]
    prepare: Callable[[Any, int, Data | None], Any]
    measure: Callable[[Any, Any, int], Mapping[str, float | None]]
    operator: Callable[[Any], str]
    by_clock: bool = False


_KINDS: dict[str, Kind] = {}


def register(kind: Kind) -> Kind:
    """Make a kind known by its name."""
    _KINDS[kind.name] = kind
    return kind


def kinds() -> tuple[str, ...]:
    """The names of all kinds."""
    return tuple(_KINDS)


def kind_of(name: str) -> Kind:
    """A kind by its name.  Raises KeyError."""
    return _KINDS[name]
