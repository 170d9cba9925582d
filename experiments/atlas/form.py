"""What one experiment of the atlas is, once its file has been read and checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from experiments.atlas.kinds import Kind, Options

__all__ = ["Axis", "Claim", "Experiment", "Method", "Panel"]

Panel = tuple[tuple[str, Any], ...]
"""One choice of the options that an experiment is repeated over: (option, value) pairs in the file's order."""

LEAST_SEEDS = 3
"""Seeds of a quick run, but for kinds by the clock: fewer rounds than a full run has would be no median."""


@dataclass(frozen=True, slots=True)
class Axis:
    """The option that is swept.  values, quick: of a full and of a quick run.  unit: how a value is written.

    scale: "log", "linear" or "names", whose places are equally far apart.
    """

    option: str
    label: str
    values: tuple[Any, ...]
    quick: tuple[Any, ...]
    unit: str
    scale: str


@dataclass(frozen=True, slots=True)
class Method:
    """A curve.  options: what it sets; not_at: values of the axis where it cannot run; own: not an opponent."""

    name: str
    options: Mapping[str, Any]
    not_at: tuple[Any, ...]
    own: bool


@dataclass(frozen=True, slots=True)
class Claim:
    """A statement that can be checked: `predicate` of `experiments.atlas.claims` about one metric.

    by: "paper" or "nile".  says: the same in words.  subjects: methods it is about, each judged for itself;
    against: the opponents that each is compared with.  at: where on the axis, empty for everywhere.
    only: panels it is claimed for, by option; empty for all.
    margin: relative, how much further than the bound it must be (negative: may fall short).
    low, high: bounds of `within` and `ratio`.  where_any: passed over where the subject has no figure, broken only
    if it has none at all.
    """

    by: str
    says: str
    predicate: str
    metric: str
    subjects: tuple[str, ...]
    against: tuple[str, ...]
    at: tuple[Any, ...]
    only: Mapping[str, Any]
    margin: float
    low: float | None
    high: float | None
    where_any: bool = False


@dataclass(frozen=True, slots=True)
class Experiment:
    """One figure.  source: where it comes from; says: what was claimed there; expect: what we expect, and why.

    panels: options it is repeated over, each with its values.  shared, real, quick: options of every point, of
    those on real data, of those of a quick run; the later win.  where: the file, for messages.
    """

    name: str
    title: str
    source: str
    says: str
    expect: str
    kind: Kind
    metrics: tuple[str, ...]
    panels: Mapping[str, tuple[Any, ...]]
    axis: Axis
    shared: Mapping[str, Any]
    real: Mapping[str, Any]
    quick: Mapping[str, Any]
    methods: Mapping[str, Method]
    claims: tuple[Claim, ...]
    seeds: int
    where: str

    def panels_of(self) -> Iterator[Panel]:
        """Every panel, in the file's order."""
        for chosen in product(*self.panels.values()):
            yield tuple(zip(self.panels, chosen, strict=True))

    def xs(self, quick: bool) -> tuple[Any, ...]:
        """Where on the axis a run measures."""
        return self.axis.quick if quick else self.axis.values

    def seeds_of(self, quick: bool) -> range:
        """The seeds of a run.  A quick run takes fewer, but of times, whose median counts, as many."""
        return range(min(LEAST_SEEDS, self.seeds) if quick and not self.kind.by_clock else self.seeds)

    def options(self, panel: Panel, method: Method, x: Any, *, quick: bool) -> Options:
        """Everything that decides a point but for its seed.  Raises pydantic's ValidationError, as the edge told."""
        return self.kind.options.model_validate(self.layers(panel, method, x, quick=quick))

    def layers(self, panel: Panel, method: Method, x: Any, *, quick: bool) -> dict[str, Any]:
        """The options of a point before they are checked: the more special win."""
        chosen = dict(panel)
        return {
            **self.shared,
            **(self.real if chosen.get("data") == "real" else {}),
            **(self.quick if quick else {}),
            **chosen,
            **method.options,
            self.axis.option: x,
        }
