"""The atlas as data: one table for everything the page shows, written as atlas.json, and its figures as CSV."""

from __future__ import annotations

import csv
import io
import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nile.base.machine import processor
from nile.experiments.atlas.form import Experiment, Panel
from nile.experiments.atlas.kinds import Data
from nile.experiments.atlas.page import render
from nile.experiments.atlas.points import Point, Record, code_version
from nile.experiments.atlas.verdicts import PanelResult, Spread, Verdict, results_of
from nile.experiments.run.runner import environment_of
from nile.report.saving import save_texts, to_json

__all__ = ["atlas_of", "csv_of", "write_atlas"]

Atlas = dict[str, Any]

_ROOT = Path(__file__).resolve().parents[2]


def atlas_of(
    experiments: Sequence[Experiment],
    points: Sequence[Point],
    records: Mapping[str, Record],
    data: Data | None,
    *,
    quick: bool,
    command: str,
    again: Sequence[str],
) -> Atlas:
    """Everything that was measured, with its verdicts.

    command: the whole command; again: those of its options that a rerun of one experiment needs.

    "environment" may differ between two equal runs, and so may figures of experiments with "by_clock"; all else
    is the same bit for bit.
    """
    machine = {**environment_of({}), "processor": processor(), "commit": _commit()}
    return {
        "environment": {**machine, "command": command, "again": list(again)},
        "code": code_version(),
        "quick": quick,
        "data": None if data is None else {"name": Path(data.path).name, **json.loads(_identity(data))},
        "experiments": [
            _experiment(each, results_of(each, points, records, quick=quick), quick) for each in experiments
        ],
    }


def write_atlas(atlas: Atlas, out: Path) -> Path:
    """Write atlas.json, atlas.csv and atlas.html into a folder, each whole or not at all; the page's path."""
    texts = {"atlas.json": to_json(atlas), "atlas.csv": csv_of(atlas), "atlas.html": render(atlas)}
    save_texts({out / name: text for name, text in texts.items()})
    return out / "atlas.html"


def csv_of(atlas: Atlas) -> str:
    """A row a point: experiment, panel, metric, method, x, middle, least, greatest, seeds.

    A text that a spreadsheet would take for a formula gets an apostrophe before it.
    """
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(["experiment", "panel", "metric", "method", "x", "middle", "least", "greatest", "seeds"])
    for row in _rows(atlas):
        writer.writerow([_guarded(cell) for cell in row])
    return out.getvalue()


def _rows(atlas: Atlas) -> Iterator[list[Any]]:
    for each in atlas["experiments"]:
        for panel in each["panels"]:
            name = ", ".join(f"{option} {value}" for option, value in panel["panel"].items())
            for metric, methods in panel["curves"].items():
                for method, curve in methods.items():
                    for point in curve:
                        figures = [point[key] for key in ("middle", "low", "high", "seeds")]
                        yield [each["name"], name, metric, method, point["x"], *figures]


def _guarded(cell: Any) -> Any:
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(("=", "+", "-", "@", "\t", "\r")) else cell


def _experiment(experiment: Experiment, results: Sequence[PanelResult], quick: bool) -> Atlas:
    return {
        "name": experiment.name,
        "title": experiment.title,
        "source": experiment.source,
        "says": experiment.says,
        "expect": experiment.expect,
        "kind": experiment.kind.name,
        "about": experiment.kind.about,
        "by_clock": experiment.kind.by_clock,
        "seeds": len(experiment.seeds_of(quick)),
        "axis": experiment.axis.model_dump(include={"option", "label", "unit", "scale"}),
        "metrics": {name: asdict(experiment.kind.metrics[name]) for name in experiment.metrics},
        "methods": {one.name: {"own": one.own, "options": dict(one.options)} for one in experiment.methods.values()},
        "machine": {name: _values(experiment, name, quick) for name in ("capacity", "speed")},
        "options": {"all": dict(experiment.shared), "real": dict(experiment.real), "quick": dict(experiment.quick)},
        "claims": len(experiment.claims),
        "missing": [dict(panel) for panel in experiment.panels_of() if panel not in {one.panel for one in results}],
        "panels": [_panel(result) for result in results],
    }


def _values(experiment: Experiment, option: str, quick: bool) -> list[float]:
    """The values that an option has at any point, those that are its default too."""
    points = (
        experiment.options(panel, method, x, quick=quick)
        for panel in experiment.panels_of()
        for method in experiment.methods.values()
        for x in experiment.xs(quick)
        if x not in method.not_at
    )
    return sorted({value for one in points if (value := getattr(one, option, None)) is not None})


def _panel(result: PanelResult) -> Atlas:
    panel: Panel = result.panel
    return {
        "panel": dict(panel),
        "curves": {
            metric: {method: [_point(x, spread) for x, spread in curve.items()] for method, curve in methods.items()}
            for metric, methods in result.curves.items()
        },
        "verdicts": [_verdict(one) for one in result.verdicts],
    }


def _point(x: Any, spread: Spread | None) -> Atlas:
    return {"x": x, **({"middle": None, "low": None, "high": None, "seeds": 0} if spread is None else asdict(spread))}


def _verdict(one: Verdict) -> Atlas:
    return {
        **{name: getattr(one.claim, name) for name in ("by", "says", "predicate", "metric", "by_construction")},
        "subject": one.subject,
        "verdict": one.verdict,
        "kept": list(one.kept),
        "trials": [asdict(trial) for trial in one.trials],
    }


def _identity(data: Data) -> str:
    names = ("sha256", "left", "right", "key", "time", "value", "split")
    return json.dumps(dict(zip(names, json.loads(data.identity), strict=True)))


def _commit() -> str | None:
    """The commit of the source tree, "+" when it was changed since; None when Nile is installed without one."""
    if not (_ROOT / ".git").exists():
        return None
    try:
        told = [
            subprocess.run(["git", *what], cwd=_ROOT, capture_output=True, text=True, check=True).stdout.strip()
            for what in (["rev-parse", "--short=12", "HEAD"], ["status", "--porcelain", "--untracked-files=no"])
        ]
    except (OSError, subprocess.CalledProcessError):
        return None
    return told[0] + ("+" if told[1] else "")
