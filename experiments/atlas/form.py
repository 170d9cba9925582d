"""What one experiment of the atlas is: the frozen models that its TOML file is checked against.

The description of a field says what it needs, for messages; `nile.experiments.atlas.edge` reads a file and checks
what only the whole of it can get wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field, InstanceOf, PrivateAttr, ValidationInfo, field_validator

from nile.experiments.atlas import measures
from nile.experiments.atlas.claims import Claim
from nile.experiments.atlas.kinds import Kind, Options
from nile.experiments.run.fields import (
    Table,
    Text,
    Texts,
    Value,
    Values,
    as_listed,
    nearest,
    one_of,
    one_of_names,
    shown,
)
from nile.summaries.errors import ConfigError

__all__ = ["Axis", "Experiment", "Method", "Panel"]

Panel = tuple[tuple[str, Any], ...]
"""One choice of the options that an experiment is repeated over: (option, value) pairs in the file's order."""

SEEDS, LEAST_SEEDS = 10, 3
"""Seeds of a full run and of a quick one, where the file says no other number."""
ROUNDS = 5
"""Rounds of kinds by the clock, in both: fewer would be no median."""

SCALES = ("log", "linear", "names")
UNITS = ("share", "milliseconds", "seconds", "number", "name")


class Axis(Table):
    """The option that is swept.  values, quick: of a full and of a quick run, where empty: the same.

    unit: how a value is written.  scale: "log", "linear" or "names", whose places are equally far apart.
    """

    option: Text = Field(description="the name of the option that is swept")
    label: Text = Field(description="what the horizontal axis says")
    values: Annotated[Values, Field(min_length=1)] = Field(description="a list of one value or more")
    quick: Values = Field((), description="those of the values that a quick run takes")
    unit: Annotated[str, one_of(UNITS)] = Field("number", description=one_of_names(UNITS))
    scale: Annotated[str, one_of(SCALES)] = Field("linear", description=one_of_names(SCALES))


class Method(Table):
    """A curve.  not_at: values of the axis where it cannot run.  All other keys are options that it sets."""

    model_config = ConfigDict(extra="allow")

    not_at: Values = Field((), description="some of the axis' values")
    opponent: bool = Field(False, description="true or false")
    _name: str = PrivateAttr("")

    @property
    def name(self) -> str:
        """What the file calls it."""
        return self._name

    @property
    def own(self) -> bool:
        """Not an opponent."""
        return not self.opponent

    @property
    def options(self) -> Mapping[str, Any]:
        """What it sets."""
        return self.model_extra or {}

    def called(self, name: str) -> Method:
        """The same, under the name that its table has."""
        self._name = name
        return self


def _kind(value: object) -> object:
    if not isinstance(value, str) or value in measures.kinds():
        return measures.kind_of(value) if isinstance(value, str) else value
    known = measures.kinds()
    raise ConfigError(f"needed {one_of_names(known)}; got {shown(value)}{nearest(value, known)}")


class Experiment(Table):
    """One figure.  source: where it comes from; says: what was claimed there; expect: what we expect, and why.

    panels: options it is repeated over, each with its values.  shared, real, quick: options of every point, of
    those on real data, of those of a quick run; the later win.  Validated with `context={"file": its path}`.
    """

    title: Text = Field(description="a line that names the figure")
    source: Text = Field(description="where the figure is from, such as 'promising tuples, figure 11'")
    says: Text = Field(description="what was claimed there, in words")
    expect: Text = Field(description="what we expect, and why")
    kind: Annotated[InstanceOf[Kind], BeforeValidator(_kind)] = Field(description="a kind of experiment")
    metrics: Annotated[Texts, Field(min_length=1)] = Field(description="a list of metrics of the kind")
    seeds: Annotated[int, Field(ge=1, le=1000)] | None = Field(None, description="a whole number of 1 or more")
    panels: dict[str, Annotated[Values, Field(min_length=1)]] = Field({}, description="a table of options with lists")
    axis: Axis = Field(description="a table [axis] with option, label and values")
    shared: dict[str, Value] = Field({}, alias="options", description="a table of options")
    real: dict[str, Value] = Field({}, description="a table of options")
    quick: dict[str, Value] = Field({}, description="a table of options")
    methods: Annotated[dict[str, Method], Field(min_length=1)] = Field(description="a table a method")
    claims: Annotated[tuple[Claim, ...], BeforeValidator(as_listed), Field(min_length=1)] = Field(
        description="one table [[claims]] or more"
    )
    _file: Path = PrivateAttr()

    @field_validator("methods")
    @classmethod
    def _with_their_names(cls, methods: dict[str, Method]) -> dict[str, Method]:
        return {name: method.called(name) for name, method in methods.items()}

    @field_validator("claims")
    @classmethod
    def _about_the_first_metric(cls, claims: tuple[Claim, ...], told: ValidationInfo) -> tuple[Claim, ...]:
        first = told.data.get("metrics", ("",))[0]
        return tuple(one if one.metric else one.model_copy(update={"metric": first}) for one in claims)

    def model_post_init(self, context: Any, /) -> None:
        """Keep what file this is."""
        self._file = context["file"]

    @property
    def name(self) -> str:
        """What the catalogue calls it."""
        return self._file.stem

    def panels_of(self) -> Iterator[Panel]:
        """Every panel, in the file's order."""
        for chosen in product(*self.panels.values()):
            yield tuple(zip(self.panels, chosen, strict=True))

    def xs(self, quick: bool) -> tuple[Any, ...]:
        """Where on the axis a run measures."""
        return (self.axis.quick if quick else ()) or self.axis.values

    def seeds_of(self, quick: bool) -> range:
        """The seeds of a run.  A quick run takes fewer, but of times, whose median counts, as many."""
        seeds = self.seeds or (ROUNDS if self.kind.by_clock else SEEDS)
        return range(min(LEAST_SEEDS, seeds) if quick and not self.kind.by_clock else seeds)

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
