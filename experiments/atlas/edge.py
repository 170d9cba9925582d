"""The edge where an experiment's file is checked: keys, types, and whether its sweep can run at all.

Gives a `nile.experiments.atlas.form.Experiment`, or one line a mistake: file, line, key, what was needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from nile.experiments.atlas.claims import NEEDS, Claim, compared
from nile.experiments.atlas.form import Experiment, Method
from nile.experiments.run.fields import Finding, findings, nearest, shown, told
from nile.experiments.run.toml_file import read_toml
from nile.summaries.errors import ConfigError

__all__ = ["load_experiment"]


def load_experiment(file: Path) -> Experiment:
    """Read one file of the catalogue.

    Raises SourceMissing when it is not there, ConfigError with one line a mistake for everything else.
    """
    table, text = read_toml(file, advice="`nile experiment list` shows what there is")
    try:
        experiment = Experiment.model_validate(table, context={"file": file})
    except ValidationError as error:
        raise ConfigError(told(findings(error, Experiment, table), str(file), text)) from None
    found = [*_names(experiment), *_sweep(experiment)] or list(_same_operator(experiment))
    if found:
        raise ConfigError(told(found, str(file), text))
    return experiment


# --- what only the whole file can get wrong ---------------------------------------------------------------


def _names(read: Experiment) -> Iterator[Finding]:
    """Names that stand for something elsewhere in the file, or that the kind has to know."""
    known = tuple(read.kind.metrics)
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
                    needed = f"needed one of {', '.join(methods)}; got {shown(name)}{nearest(name, methods)}"
                    yield Finding(("claims", i, role), needed)
        if claim.metric not in read.metrics:
            needed = f"needed one of {', '.join(read.metrics)}; got {shown(claim.metric)}"
            yield Finding(("claims", i, "metric"), f"{needed}{nearest(claim.metric, read.metrics)}")
        for value in claim.at:
            if value not in read.axis.values:
                yield Finding(("claims", i, "at"), f"needed some of the axis' values; got {shown(value)}")
        for option, value in claim.only.items():
            if value not in read.panels.get(option, ()):
                yield Finding(("claims", i, "only"), f"needed a value of [panels] {option}; got {shown(value)}")
        for need in NEEDS[claim.predicate]:
            if getattr(claim, need) in ((), None):
                yield Finding(("claims", i, "predicate"), f"needed {need} with {claim.predicate!r}; it is missing")


def _sweep(experiment: Experiment) -> Iterator[Finding]:
    """Points whose options the kind does not take; each mistake once."""
    seen: dict[str, Finding] = {}
    for quick in (False, True):
        for panel in experiment.panels_of():
            for method in experiment.methods.values():
                for x in experiment.xs(quick):
                    if x in method.not_at:
                        continue
                    try:
                        experiment.options(panel, method, x, quick=quick)
                    except ValidationError as error:
                        given = experiment.layers(panel, method, x, quick=quick)
                        for found in findings(error, experiment.kind.options, given):
                            placed = Finding(_home(experiment, method, panel, found, quick), found.message)
                            seen.setdefault(str(placed), placed)
    yield from seen.values()


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
            same = _same_at(experiment, claim, [experiment.methods[name] for name in pair if name])
            if same:
                yield Finding(("claims", i), same)
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
