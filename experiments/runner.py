"""The experiment runner: every method, guide, preference, budget and seed of a config, scored alike."""

from __future__ import annotations

import json
import math
import platform
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from experiments.config import RunConfig, StreamConfig, SyntheticData
from experiments.progress import Progress
from experiments.workload import Workload, Workshop
from nile import __version__
from nile.answer import Answer
from nile.operators.plan import PREFERRING, JoinPlan
from nile.report.heatmap import HeatMap
from nile.report.html import render
from nile.report.markup import Markup
from nile.report.metrics import Obtained, score
from nile.spark.machine import core_count, memory_bytes
from preferences.budget import Budget
from preferences.clock import Pace
from preferences.fade import Fade
from pyramid.manager import SummaryManager
from summaries.costs import cost_table
from summaries.lazy import lazy

__all__ = ["Case", "Finished", "cases", "run_experiment", "write_report"]

kernels = lazy("summaries.kernels")
_SECOND = 1e9


@dataclass(frozen=True, slots=True)
class Case:
    """One run of the grid.  Only `nile` has guides; one run of an opponent serves every preference."""

    method: str
    guide: str | None
    preference: str
    budget: float
    seed: int
    costs: str


def cases(config: RunConfig) -> Iterator[Case]:
    """The grid in a fixed order: costs, seed, method, guide, preference, budget."""
    for costs in config.costs:
        for seed in config.seeds:
            for method in config.methods:
                guides = config.guides if method == "nile" else (None,)
                for guide in guides:
                    for preference in config.preferences:
                        for budget in config.budgets:
                            yield Case(method, guide, preference, budget, seed, costs)


@dataclass(frozen=True, slots=True)
class Finished:
    """report: {"environment": ..., "runs": [...]}; pictures: a heat map of each stream's summary, for the page."""

    report: dict[str, Any]
    pictures: tuple[Markup, ...]


def run_experiment(config: RunConfig, progress: Progress, *, command: str, text: str | None = None) -> Finished:
    """Run a config: prepare, judge, run every case, score.

    Spark prepares the streams and computes the exact answer; every run is scored against that.  The same
    config gives the same "runs", bit for bit.  command and text (the config) are recorded for a rerun.
    """
    with tempfile.TemporaryDirectory(prefix="nile-run-") as name:
        workshop = Workshop(config, Path(name), progress)
        workshop.start()
        workshop.prepare()
        everything = list(cases(config))
        workloads = {seed: workshop.workload(seed) for seed in config.seeds}
        with progress.stage("kernels", total=1):
            if kernels.cold_start():
                progress.say("compiling kernels, once on this machine: about a minute")
            _warm_up(config, workloads[config.seeds[0]])
            progress.step("ready")
        records = []
        opponents: dict[tuple[str, float, int, str], dict[str, Any]] = {}
        with progress.stage("queries", total=len(everything)):
            for case in everything:
                key = (case.method, case.budget, case.seed, case.costs)
                known = opponents.get(key)
                if known is None:
                    known = _record(config, case, workloads[case.seed])
                    if case.method not in PREFERRING:
                        opponents[key] = known
                records.append({**known, "preference": case.preference})
                progress.step(f"{case.method} {case.guide or ''} {case.preference} at {case.budget:g}")
        with progress.stage("summaries", total=2):
            pictures = tuple(_pictures(config, workloads[config.seeds[0]], progress))
    environment = {**environment_of(workshop.versions), "batch_rows": config.batch_rows, "command": command}
    if text is not None:
        environment["config"] = text
    environment["timings"] = {stage: round(seconds, 3) for stage, seconds in progress.timings.items()}
    return Finished({"environment": environment, "runs": records}, pictures)


def write_report(report: dict[str, Any], out: Path, pictures: Sequence[Markup] = ()) -> tuple[Path, Path]:
    """Write report.json and report.html into a folder (made if it is not there), each whole or not at all."""
    out.mkdir(parents=True, exist_ok=True)
    text = json.dumps(report, indent=1, allow_nan=False) + "\n"
    paths = (out / "report.json", out / "report.html")
    for path, content in zip(paths, (text, render(report, pictures)), strict=True):
        partial = path.with_suffix(path.suffix + ".partial")
        partial.write_text(content, encoding="utf-8")
        shutil.move(partial, path)
    return paths


def plan_of(config: RunConfig, case: Case) -> JoinPlan:
    """The join that a case asks for."""
    spec = config.summary.spec(config.window, forgetting=config.forgetting, seed=case.seed)
    return JoinPlan(
        window=config.window,
        budget=Budget(case.budget),
        method=case.method,
        preference=case.preference,
        guide=case.guide or "countsketch",
        fade=Fade(config.fade),
        output=config.output,
        costs=cost_table(case.costs),
        pace=Pace(config.replay, config.replay_mean),
        outlier_cap=config.outlier_cap,
        spec=spec,
        seed=case.seed,
    )


def _warm_up(config: RunConfig, workload: Workload) -> None:
    """Load every kernel the grid will use, so that compiling is told apart from querying."""
    for case in cases(config):
        answer = Answer(workload.joined, plan_of(config, case), key="key", batch_rows=256)
        next(iter(answer.outputs()), None)


def _pictures(config: RunConfig, workload: Workload, progress: Progress) -> Iterator[Markup]:
    """The whole stream summarised, as a build without a budget would; a heat map of each side."""
    spec = config.summary.spec(config.window, forgetting=config.forgetting, seed=config.seeds[0])
    if spec.structure == "T1":
        return
    for side, stream in (("left", workload.joined.left), ("right", workload.joined.right)):
        summary = SummaryManager(spec)
        summary.ingest(stream.ts, stream.key, where=f"stream '{side}'")
        yield HeatMap.of(summary, f"Summary of the {side} stream").figure()
        progress.step(f"{side}: {len(summary.zones())} zones")


def _record(config: RunConfig, case: Case, workload: Workload) -> dict[str, Any]:
    plan = plan_of(config, case)
    answer = Answer(workload.joined, plan, key="key", batch_rows=config.batch_rows)
    pairs = answer.pairs()
    figures = answer.figures
    accounting = answer.accounting
    told = score(
        workload.exact,
        Obtained(pairs.left, pairs.right, pairs.weight),
        window=config.window,
        outlier_cap=config.outlier_cap,
    )
    total = accounting["left"] + accounting["right"]
    record: dict[str, Any] = {
        "method": case.method,
        "guide": case.guide,
        "preference": case.preference,
        "budget": case.budget,
        "seed": case.seed,
        "output": config.output,
        "costs": case.costs,
        "exact_pairs": len(workload.exact),
        **told.record(),
        "records": figures.outputs,
        "coverage": answer.coverage,
        "budget_spent": figures.budget_spent,
        "insert_cost": _per(figures.spent_insert, figures.admitted),
        "hit_cost": _per(figures.spent_hit, figures.outputs),
        "outputs_per_input": _per(figures.outputs, total.tuples_in),
        "tuples_in": total.tuples_in,
        "tuples_shed": total.shed,
        "window_s": None if config.window is None else config.window / _SECOND,
        "outlier_cap": config.outlier_cap,
        "replay": config.replay,
        "replay_mean_s": config.replay_mean / _SECOND if config.replay == "exponential" else None,
        "forgetting": config.forgetting,
        "fade": config.fade,
        "accounting": {side: told_of.as_dict() for side, told_of in accounting.items()},
        "dataset": dataset_of(config),
    }
    return {name: _json_number(value) for name, value in record.items()}


def dataset_of(config: RunConfig) -> dict[str, str]:
    """What was joined, by name: no path, so that a report is the same wherever the data lies."""
    return {
        "name": _source_name(config.left),
        "left": config.left.where or "all of it",
        "right": config.right.where or "all of it",
        "key": config.left.key if config.left.key == config.right.key else f"{config.left.key} = {config.right.key}",
        **({} if config.left.source == config.right.source else {"right source": _source_name(config.right)}),
    }


def environment_of(versions: dict[str, str]) -> dict[str, Any]:
    """The machine and the packages: everything of a report that may differ between two equal runs."""
    packages = ("numpy", "numba", "pyarrow", "pyspark", "sqlglot", "mmh3", "datasketches")
    return {
        "nile": __version__,
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": core_count(),
        "memory_gib": round(memory_bytes() / 2**30, 1),
        **versions,
        "packages": {name: version(name) for name in packages},
    }


def _source_name(stream: StreamConfig) -> str:
    source = stream.source
    if isinstance(source, SyntheticData):
        return f"synthetic retail, seed {source.seed}, {source.tuples:,} tuples, {source.items:,} items"
    return source.name


def _per(total: float, count: int) -> float | None:
    return total / count if count else None


def _json_number(value: Any) -> Any:
    """JSON has no NaN and no infinity: a figure that does not exist is null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
