"""The experiment runner: every method, guide, preference, budget and seed of a config, scored alike."""

from __future__ import annotations

import platform
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from nile import __version__
from nile.answers.join_answer import JoinAnswer
from nile.base.machine import core_count, memory_bytes
from nile.experiments.run.config import SYNTHETIC, RunConfig, StreamConfig
from nile.experiments.run.progress import Progress
from nile.experiments.run.workload import Workload, Workshop
from nile.operators.common.plan import PREFERRING, JoinPlan, told_preference
from nile.operators.drive.metered import load_kernels
from nile.operators.drive.timing import insert_time, run_time, wall_figures
from nile.operators.join.join import example_join
from nile.preferences.fade import Fade
from nile.pyramid.grid.manager import SummaryManager
from nile.report.pages.heatmap import HeatMap
from nile.report.pages.html import render
from nile.report.pages.markup import Markup
from nile.report.records import finite, join_record
from nile.report.saving import save_texts, to_json
from nile.summaries.costs import cost_table
from nile.summaries.lazy import lazy

__all__ = ["Case", "Finished", "cases", "run_experiment", "write_report"]

kernels = lazy("nile.summaries.kernels")
_SECOND = 1e9


@dataclass(frozen=True, slots=True)
class Case:
    """One run of the grid.  Only `nile` has guides, only `paper` structures to choose from; one run of an opponent
    serves every preference.  budget: in the unit of the config.
    """

    method: str
    guide: str | None
    preference: str
    budget: float
    seed: int
    costs: str
    structure: str | None = None


def cases(config: RunConfig) -> Iterator[Case]:
    """The grid in a fixed order: costs, seed, method, guide or structure, preference, budget."""
    for costs in config.costs:
        for seed in config.seeds:
            for method in config.methods:
                guides = config.guides if method == "nile" else (None,)
                for guide in guides:
                    for structure in _structures(config, method, guide):
                        for preference in config.preferences:
                            for budget in config.budgets:
                                yield Case(method, guide, preference, budget, seed, costs, structure)


def _structures(config: RunConfig, method: str, guide: str | None) -> tuple[str | None, ...]:
    """What the summaries of a method are built as; None for a method without."""
    if method == "paper":
        return config.structures or (config.summary.structure,)
    return (config.summary.structure if guide == "countsketch" else None,)


@dataclass(frozen=True, slots=True)
class Finished:
    """report: {"environment": ..., "runs": [...], "measured": [...]}: `measured` are times on this machine, of
    run number `run`.  pictures: a heat map of each stream's summary, for the page.
    """

    report: dict[str, Any]
    pictures: tuple[Markup, ...]


def run_experiment(config: RunConfig, progress: Progress, *, command: str, text: str | None = None) -> Finished:
    """Run a config: prepare, judge, run every case, score.

    Spark prepares the streams and computes the exact answer; every run is scored against that.  The same
    config gives the same "runs", bit for bit, unless its budgets are CPU times.  command and text (the config)
    are recorded for a rerun.
    """
    cold = kernels.cold_start()
    kernels.told()
    with tempfile.TemporaryDirectory(prefix="nile-run-") as name:
        workshop = Workshop(config, Path(name), progress)
        threading.Thread(target=_compile, args=(config,), daemon=True, name="nile-kernels").start()
        workshop.start()
        workshop.prepare()
        everything = list(cases(config))
        workloads = {seed: workshop.workload(seed) for seed in config.seeds}
        with progress.stage("kernels", total=1):
            if cold:
                progress.say("compiling kernels, once on this machine: half a minute, begun with the first stage")
            _warm_up(config, workloads[config.seeds[0]])
            progress.step("ready")
        records, measured = [], []
        opponents: dict[tuple[str, str, float, int, str], tuple[dict[str, Any], dict[str, Any]]] = {}
        bench = _Bench(config)
        with progress.stage("queries", total=len(everything)):
            for number, case in enumerate(everything):
                told = told_preference(case.method, case.preference)
                key = (case.method, told, case.budget, case.seed, case.costs)
                known = opponents.get(key)
                if known is None:
                    known = bench.run(case, workloads[case.seed])
                    if case.method not in PREFERRING:
                        opponents[key] = known
                records.append({**known[0], "preference": case.preference})
                measured.append({"run": number, **known[1]})
                what = case.guide or (case.structure if config.structures else None) or ""
                progress.step(f"{case.method} {what} {case.preference} at {case.budget:g}")
        with progress.stage("summaries", total=2):
            pictures = tuple(_pictures(config, workloads[config.seeds[0]], progress))
    environment = {**environment_of(workshop.versions), "batch_rows": config.batch_rows, "command": command}
    if text is not None:
        environment["config"] = text
    environment["timings"] = {stage: round(seconds, 3) for stage, seconds in progress.timings.items()}
    return Finished({"environment": environment, "runs": records, "measured": measured}, pictures)


def write_report(report: dict[str, Any], out: Path, pictures: Sequence[Markup] = ()) -> tuple[Path, Path]:
    """Write report.json and report.html into a folder (made if it is not there), each whole or not at all."""
    json_path, html_path = out / "report.json", out / "report.html"
    save_texts({json_path: to_json(report), html_path: render(report, pictures)})
    return json_path, html_path


def plan_of(config: RunConfig, case: Case) -> JoinPlan:
    """The join that a case asks for."""
    spec = config.summary.spec(config.window, forgetting=config.forgetting, seed=case.seed)
    if case.structure is not None and case.structure != spec.structure:
        spec = replace(spec, structure=case.structure)
    return JoinPlan(
        window=config.window,
        budget=config.budget(case.budget),
        method=case.method,
        preference=told_preference(case.method, case.preference),
        guide=case.guide or "countsketch",
        fade=Fade(config.fade),
        output=config.output,
        costs=cost_table(case.costs),
        pace=config.pace,
        outlier_cap=config.outlier_cap,
        spec=spec,
        seed=case.seed,
    )


def _compile(config: RunConfig) -> None:
    """Compile kernels beside the work of Spark, which other processes do; what fails here fails in `_warm_up`, told."""
    with suppress(Exception):
        for case in cases(config):
            load_kernels(example_join(plan_of(config, case)))


def _warm_up(config: RunConfig, workload: Workload) -> None:
    """Load every kernel the grid will use, so that compiling is told apart from querying."""
    for case in cases(config):
        plan = plan_of(config, case)
        if plan.budget.is_reproducible:
            answer = JoinAnswer(workload.joined, plan, key="key", batch_rows=256)
            next(iter(answer.outputs()), None)
        else:
            load_kernels(example_join(plan))


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


class _Bench:
    """Runs cases and measures them; what inserting takes is measured once for all budgets of a method."""

    def __init__(self, config: RunConfig) -> None:
        self._config = config
        self._inserting: dict[Any, float | None] = {}

    def run(self, case: Case, workload: Workload) -> tuple[dict[str, Any], dict[str, Any]]:
        """The record of a case, and what it took on this machine."""
        plan = plan_of(self._config, case)
        answer = JoinAnswer(
            workload.joined, plan, key="key", batch_rows=self._config.batch_rows, speed=self._config.speed
        )
        record = {
            **join_record(answer, workload.exact),
            "budget": case.budget,
            "speed": self._config.speed if answer.budget.unit == "share" else None,
            "dataset": dataset_of(self._config),
        }
        return record, finite(self._measure(case, plan, answer))

    def _measure(self, case: Case, plan: JoinPlan, answer: JoinAnswer) -> dict[str, float | None]:
        key = (replace(case, budget=0.0), plan.is_exact)
        if key not in self._inserting:
            self._inserting[key] = insert_time(plan, answer.input)
        figures, cpu = answer.figures, answer.cpu_seconds
        taken = 1e9 * cpu if cpu is not None else run_time(plan, answer.input)
        told = wall_figures(figures, self._inserting[key], taken)
        interarrival = _cpu_budget(self._config, plan, answer)
        predicted = None
        if interarrival is not None and told.t_ins is not None and told.t_hit is not None:
            predicted = max(0.0, interarrival - told.t_ins) / told.t_hit
        return {
            "t_ins_ns": told.t_ins,
            "t_hit_ns": told.t_hit,
            "cpu_ns": told.cpu,
            "interarrival_ns": interarrival,
            "outputs_per_input_predicted": predicted,
        }


def _cpu_budget(config: RunConfig, plan: JoinPlan, answer: JoinAnswer) -> float | None:
    """CPU ns that a budget by the wall clock grants an arrival; None for one that does not look at it."""
    arrivals = int(answer.input.order.shape[0])
    budget = plan.budget
    if budget.is_reproducible or not arrivals:
        return None
    if budget.unit == "share":
        times = answer.input.times()
        span = float(times[-1] - times[0])
        return budget.amount * span / config.speed / arrivals
    return _SECOND * budget.amount / (arrivals if budget.unit == "seconds" else 1)


def dataset_of(config: RunConfig) -> dict[str, str]:
    """What was joined, by name: no path, so that a report is the same wherever the data lies."""
    return {
        "name": _source_name(config, config.left),
        "left": config.left.where or "all of it",
        "right": config.right.where or "all of it",
        "key": config.left.key if config.left.key == config.right.key else f"{config.left.key} = {config.right.key}",
        **({} if config.left.source == config.right.source else {"right source": _source_name(config, config.right)}),
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


def _source_name(config: RunConfig, stream: StreamConfig) -> str:
    if stream.source != SYNTHETIC:
        return Path(stream.source).name
    drawn = config.synthetic
    return f"synthetic retail, seed {drawn.seed}, {drawn.tuples:,} tuples, {drawn.items:,} items"
