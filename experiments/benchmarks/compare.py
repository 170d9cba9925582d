"""What changed between two runs of benchmarks: their figures side by side, and whether the difference is one.

Only figures are compared, ratios first of all: times belong to one machine and one minute.  Two figures differ when
their spreads do not overlap; one without a spread, when it moved by more than a tenth.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nile.summaries.errors import ConfigError

__all__ = ["Change", "changes", "markdown", "read_report"]

_SAME = 0.1
"""Relative: what a figure without a spread may move by."""
_RUN = ("work", "unit", "brief", "measures")
_MEASURE = ("name", "value", "unit", "bar", "most", "low", "high", "met")


@dataclass(frozen=True, slots=True)
class Change:
    """One figure in two runs.  old, new: as `Measure.as_dict` gives it, None: not in that run."""

    benchmark: str
    name: str
    old: Mapping[str, Any] | None
    new: Mapping[str, Any] | None

    @property
    def lost(self) -> bool:
        """Whether a bar that was reached is not any more."""
        return self.old is not None and self.new is not None and self.old["met"] is True and self.new["met"] is False

    @property
    def kind(self) -> str:
        """ "new", "gone", "same", or "better", "worse" and, without a bar that says which is which, "changed"; "other"
        for a benchmark over another amount of work."""
        if self.old is None and self.new is None:
            return "other"
        if self.old is None or self.new is None:
            return "new" if self.old is None else "gone"
        if not _differ(self.old, self.new):
            return "same"
        if self.new["bar"] is None:
            return "changed"
        return "better" if (self.new["value"] < self.old["value"]) == bool(self.new["most"]) else "worse"

    def text(self) -> str:
        """One line."""
        told = " -> ".join(_told(each) for each in (self.old, self.new) if each is not None)
        line = f"{self.kind:<7} {self.benchmark}, {self.name}{': ' if told else ''}{told}"
        if self.old is not None and self.new is not None and self.old["bar"] != self.new["bar"]:
            line += f"; bar {_bar(self.old)} -> {_bar(self.new)}"
        return f"{line}; the bar is LOST" if self.lost else line


def read_report(path: Path) -> dict[str, Any]:
    """A bench.json, by the names of its benchmarks.  Raises ConfigError."""
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
        runs = {each["name"]: {key: each[key] for key in _RUN} for each in report["results"]}
        for run in runs.values():
            run["measures"] = [{key: measure[key] for key in _MEASURE} for measure in run["measures"]]
        return runs
    except FileNotFoundError:
        raise ConfigError(
            f"{path}: needed a bench.json; there is no such file; `nile bench all --out DIR` writes one"
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{path}: needed what `nile bench ... --out DIR` writes; got {type(error).__name__}: {error}; write it anew"
        ) from None


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Change]:
    """Every figure of two reports, by benchmark.  One over other amounts of work is another benchmark: not compared."""
    for name in sorted({*old, *new}):
        a, b = old.get(name), new.get(name)
        if a is not None and b is not None and (a["work"], a["brief"]) != (b["work"], b["brief"]):
            yield Change(name, f"not compared: {_size(a)} and {_size(b)}", None, None)
            continue
        before, after = (
            {} if run is None else {measure["name"]: measure for measure in run["measures"]} for run in (a, b)
        )
        for measure in {**before, **after}:
            yield Change(name, measure, before.get(measure), after.get(measure))


def markdown(report: Mapping[str, Any], names: Sequence[str] = ()) -> str:
    """The figures that have a bar, as a table for a page.

    names: only of these benchmarks, `exact` standing for all `exact-...`, in this order; none: of all.  Raises
    ConfigError for one that the report has not.
    """
    chosen: list[str] = []
    for name in names:
        found = [each for each in report if each == name or each.startswith(f"{name}-")]
        if not found:
            raise ConfigError(f"bench table: needed one of {', '.join(report)}; got {name!r}; run it with --out first")
        chosen += found
    lines = ["| benchmark | figure | measured | bar |", "|---|---|---|---|"]
    for name in chosen or report:
        run = report[name]
        for measure in run["measures"]:
            if measure["bar"] is not None:
                side = "at most" if measure["most"] else "at least"
                met = "" if measure["met"] else ", **not reached**"
                figure = measure["name"].replace("|", "\\|")
                lines.append(f"| {name} | {figure} | {_told(measure)} | {side} {_digits(measure['bar'])}{met} |")
    return "\n".join(lines)


def _size(run: Mapping[str, Any]) -> str:
    return f"{run['work']:,} {run['unit']}{', brief' if run['brief'] else ''}"


def _told(measure: Mapping[str, Any]) -> str:
    unit = f" {measure['unit']}" if measure["unit"] else ""
    spread = "" if measure["low"] is None else f" ({_digits(measure['low'])} to {_digits(measure['high'])})"
    return f"{_digits(measure['value'])}{unit}{spread}"


def _bar(measure: Mapping[str, Any]) -> str:
    return "none" if measure["bar"] is None else _digits(measure["bar"])


def _digits(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.3g}"


def _differ(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    if old["low"] is not None and new["low"] is not None:
        return bool(old["high"] < new["low"] or new["high"] < old["low"])
    return bool(abs(new["value"] - old["value"]) > _SAME * max(abs(old["value"]), abs(new["value"])))
