"""The edge where an experiment's file is checked: keys, types, and whether its sweep can run at all, with pydantic.

Gives the frozen dataclasses of `experiments.atlas.form`, or one line a mistake: file, line, key, what was needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from experiments.atlas import measures
from experiments.atlas.claims import NEEDS, PREDICATES, compared
from experiments.atlas.form import Axis, Claim, Experiment, Method
from experiments.atlas.kinds import Kind, one_of
from experiments.run.config_edge import Finding, nearest, shown
from experiments.run.toml_file import read_toml
from experiments.run.toml_lines import line_of
from summaries.errors import ConfigError

__all__ = ["load_experiment"]

SCALES = ("log", "linear", "names")
UNITS = ("share", "milliseconds", "seconds", "number", "name")
AUTHORS = ("paper", "nile")


def load_experiment(file: Path) -> Experiment:
    """Read one file of the catalogue.

    Raises SourceMissing when it is not there, ConfigError with one line a mistake for everything else.
    """
    table, text = read_toml(file, advice="`nile experiment list` shows what there is")
    try:
        read = _File.model_validate(table)
    except ValidationError as error:
        raise _told([_finding(dict(one), _File) for one in error.errors(include_url=False)], file, text) from None
    experiment = _built(read, file)
    found = [*_names(read, experiment.kind), *_sweep(experiment)]
    if found:
        raise _told(found, file, text)
    same = list(_same_operator(experiment))
    if same:
        raise _told(same, file, text)
    return experiment


# --- the tables -------------------------------------------------------------------------------------------


def _many(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


Text = Annotated[str, Field(min_length=1)]
Texts = Annotated[tuple[Text, ...], BeforeValidator(_many)]
Value = str | bool | int | float
Values = Annotated[tuple[Value, ...], BeforeValidator(_many)]
Number = Annotated[float, Field(allow_inf_nan=False)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Axis(_Table):
    option: Text = Field(description="the name of the option that is swept")
    label: Text = Field(description="what the horizontal axis says")
    values: Annotated[Values, Field(min_length=1)] = Field(description="a list of one value or more")
    quick: Values = Field((), description="those of the values that a quick run takes")
    unit: Annotated[str, one_of(UNITS)] = Field("number", description=f"one of {', '.join(UNITS)}")
    scale: Annotated[str, one_of(SCALES)] = Field("linear", description=f"one of {', '.join(SCALES)}")


class _Claim(_Table):
    by: Annotated[str, one_of(AUTHORS)] = Field(description=f"one of {', '.join(AUTHORS)}")
    says: Text = Field(description="the claim in words")
    predicate: Annotated[str, one_of(tuple(PREDICATES))] = Field(description=f"one of {', '.join(PREDICATES)}")
    metric: str = Field("", description="one of the experiment's metrics")
    subjects: Annotated[Texts, Field(min_length=1)] = Field(description="a list of methods")
    against: Texts = Field((), description="a list of methods")
    at: Values = Field((), description="some of the axis' values")
    only: dict[str, Value] = Field({}, description="a table of panel options")
    margin: Annotated[Number, Field(gt=-1)] = Field(0.0, description="a number above -1, such as 0.05 for 5 %")
    low: Number | None = Field(None, description="a finite number")
    high: Number | None = Field(None, description="a finite number")
    where_any: bool = Field(False, description="true or false")


class _File(_Table):
    title: Text = Field(description="a line that names the figure")
    source: Text = Field(description="where the figure is from, such as 'promising tuples, figure 11'")
    says: Text = Field(description="what was claimed there, in words")
    expect: Text = Field(description="what we expect, and why")
    kind: Text = Field(description="a kind of experiment")
    metrics: Annotated[Texts, Field(min_length=1)] = Field(description="a list of metrics of the kind")
    seeds: Annotated[int, Field(ge=1, le=1000)] = Field(5, description="a whole number of 1 or more")
    panels: dict[str, Annotated[Values, Field(min_length=1)]] = Field({}, description="a table of options with lists")
    axis: _Axis = Field(description="a table [axis] with option, label and values")
    options: dict[str, Value] = Field({}, description="a table of options")
    real: dict[str, Value] = Field({}, description="a table of options")
    quick: dict[str, Value] = Field({}, description="a table of options")
    methods: Annotated[dict[str, dict[str, Any]], Field(min_length=1)] = Field(description="a table a method")
    claims: Annotated[tuple[_Claim, ...], BeforeValidator(_many), Field(min_length=1)] = Field(
        description="one table [[claims]] or more"
    )


_TABLES: dict[str, type[_Table]] = {"axis": _Axis, "claims": _Claim}


def _built(read: _File, file: Path) -> Experiment:
    """The dataclasses of a file whose tables have the right shape.  Raises ConfigError for an unknown kind."""
    if read.kind not in measures.kinds():
        known = measures.kinds()
        told = f"needed one of {', '.join(known)}; got {shown(read.kind)}{nearest(read.kind, known)}"
        raise _told([Finding(("kind",), told)], file, file.read_text(encoding="utf-8-sig"))
    methods = {}
    for name, given in read.methods.items():
        options = dict(given)
        not_at, own = options.pop("not_at", ()), options.pop("opponent", False) is not True
        methods[name] = Method(name, options, tuple(_many(not_at)), own)  # type: ignore[arg-type]
    claims = tuple(
        Claim(**{**{name: getattr(one, name) for name in _Claim.model_fields}, "metric": one.metric or read.metrics[0]})
        for one in read.claims
    )
    values = read.axis.values
    return Experiment(
        name=file.stem,
        **{name: getattr(read, name) for name in ("title", "source", "says", "expect", "metrics", "panels", "seeds")},
        kind=measures.kind_of(read.kind),
        axis=Axis(
            read.axis.option, read.axis.label, values, read.axis.quick or values, read.axis.unit, read.axis.scale
        ),
        shared=read.options,
        real=read.real,
        quick=read.quick,
        methods=methods,
        claims=claims,
        where=str(file),
    )


# --- what only the whole file can get wrong ---------------------------------------------------------------


def _names(read: _File, kind: Kind) -> Iterator[Finding]:
    """Names that stand for something elsewhere in the file, or that the kind has to know."""
    known = tuple(kind.metrics)
    for i, metric in enumerate(read.metrics):
        if metric not in known:
            yield Finding(
                ("metrics", i), f"needed one of {', '.join(known)}; got {shown(metric)}{nearest(metric, known)}"
            )
    for value in read.axis.quick:
        if value not in read.axis.values:
            yield Finding(("axis", "quick"), f"needed values that a full run has too; got {shown(value)}")
    methods = tuple(read.methods)
    for i, claim in enumerate(read.claims):
        for role in ("subjects", "against"):
            for name in getattr(claim, role):
                if name not in methods:
                    told = f"needed one of {', '.join(methods)}; got {shown(name)}{nearest(name, methods)}"
                    yield Finding(("claims", i, role), told)
        if claim.metric and claim.metric not in read.metrics:
            told = f"needed one of {', '.join(read.metrics)}; got {shown(claim.metric)}"
            yield Finding(("claims", i, "metric"), f"{told}{nearest(claim.metric, read.metrics)}")
        for value in claim.at:
            if value not in read.axis.values:
                yield Finding(("claims", i, "at"), f"needed some of the axis' values; got {shown(value)}")
        for option, value in claim.only.items():
            if value not in read.panels.get(option, ()):
                told = f"needed a value of [panels] {option}; got {shown(value)}"
                yield Finding(("claims", i, "only"), told)
        for need in NEEDS[claim.predicate]:
            if getattr(claim, need) in ((), None):
                yield Finding(("claims", i, "predicate"), f"needed {need} with {claim.predicate!r}; it is missing")


def _sweep(experiment: Experiment) -> Iterator[Finding]:
    """Points whose options the kind does not take; each mistake once."""
    told: dict[str, Finding] = {}
    for quick in (False, True):
        for panel in experiment.panels_of():
            for method in experiment.methods.values():
                for x in experiment.xs(quick):
                    if x in method.not_at:
                        continue
                    try:
                        experiment.options(panel, method, x, quick=quick)
                    except ValidationError as error:
                        for one in error.errors(include_url=False):
                            found = _finding(dict(one), experiment.kind.options)
                            placed = Finding(_home(experiment, method, panel, found, quick), found.message)
                            told.setdefault(str(placed), placed)
    yield from told.values()


def _home(experiment: Experiment, method: Method, panel: Any, found: Finding, quick: bool) -> tuple[str | int, ...]:
    """Which table of the file set the option that a finding is about: the last to set it."""
    if not found.path:  # about several options together: the sweep cannot run
        return ("methods", method.name)
    name = str(found.path[0])
    homes: list[tuple[Mapping[str, Any] | tuple[str, ...], tuple[str | int, ...]]] = [
        ((experiment.axis.option,), ("axis", "option" if "known" in found.message else "values")),
        (method.options, ("methods", method.name, name)),
        (experiment.panels, ("panels", name)),
        (experiment.quick if quick else {}, ("quick", name)),
        (experiment.real if dict(panel).get("data") == "real" else {}, ("real", name)),
    ]
    return next((path for options, path in homes if name in options), ("options", name))


def _same_operator(experiment: Experiment) -> Iterator[Finding]:
    """Claims that compare a method with itself under another name; the first place of each."""
    for i, claim in enumerate(experiment.claims):
        for pair in compared(claim):
            told = _same_at(experiment, claim, [experiment.methods[name] for name in pair if name])
            if told:
                yield Finding(("claims", i), told)
                break


def _same_at(experiment: Experiment, claim: Claim, pair: list[Method]) -> str | None:
    """Where two methods are one and the same, in words; None where they differ everywhere."""
    for panel in experiment.panels_of():
        for x in claim.at or experiment.axis.values:
            if len(pair) < 2 or any(x in method.not_at for method in pair):
                continue
            ran = [experiment.kind.operator(experiment.options(panel, method, x, quick=False)) for method in pair]
            if ran[0] == ran[1]:
                return (
                    f"needed methods that differ; got {pair[0].name!r} and {pair[1].name!r}, both of which run "
                    f"{ran[0]!r} at {experiment.axis.option} = {x}; compare two operators"
                )
    return None


# --- what went wrong, in the words of the file ------------------------------------------------------------


def _finding(mistake: dict[str, Any], top: type[BaseModel]) -> Finding:
    """One error of pydantic as a Finding."""
    path: tuple[str | int, ...] = tuple(part for part in mistake["loc"] if part not in ("str", "bool", "int", "float"))
    if mistake["type"] == "extra_forbidden":
        known = tuple(_model(path, top).model_fields)
        name = str(path[-1])
        return Finding(
            path, f"needed a known key; got {name!r}" + (nearest(name, known) or f"; known here: {', '.join(known)}")
        )
    if mistake["type"] == "value_error":
        return Finding(path, str(mistake["ctx"]["error"]))
    field = next((str(part) for part in reversed(path) if part in _model(path, top).model_fields), "")
    needed = _model(path, top).model_fields[field].description if field else "a table"
    if mistake["type"] == "missing":
        return Finding(path, f"needed {needed}; it is missing")
    return Finding(path, f"needed {needed}; got {shown(mistake['input'])}")


def _model(path: tuple[str | int, ...], top: type[BaseModel]) -> type[BaseModel]:
    return _TABLES.get(str(path[0]), top) if top is _File and len(path) > 1 else top


def _told(findings: list[Finding], file: Path, text: str) -> ConfigError:
    lines = [(line_of(text, one.path) or 1, str(one)) for one in findings]
    return ConfigError("\n".join(f"{file}:{line}: {told}" for line, told in sorted(lines)))
