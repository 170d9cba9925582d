"""The foot of the page: may the numbers be trusted, where the time went, on what machine, every run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nile.report.checks import checks
from nile.report.pages.markup import Markup, element, joined
from nile.report.pages.svg import bar
from nile.report.runs import Record, number
from nile.report.wording import Amount, duration, grouped_digits, shown, tick

__all__ = ["appendix", "column", "plain"]


def appendix(records: Sequence[Record], environment: Mapping[str, Any]) -> Markup:
    """All sections that follow the figures; those with nothing to tell are left out."""
    again = all(record.get("reproducible") is not False for record in records)
    return joined(
        _trust(records), _timings(environment, again), _environment(environment), _rerun(environment, again),
        _every_run(records),
    )  # fmt: skip


def column(name: str) -> Markup:
    """The head of a column."""
    return element("th", name, scope="col")


def plain(value: object) -> str:
    """Any value of a report on one line."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {plain(part)}" for name, part in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(plain(part) for part in value)
    if value is None or isinstance(value, bool):
        return {True: "yes", False: "no", None: "none"}[value]
    return str(value)


def _trust(records: Sequence[Record]) -> Markup:
    if not records:
        return Markup()
    marks = {True: ("✓", "holds"), False: ("✗", "broken"), None: ("–", "unknown")}
    rows = [
        element(
            "li",
            element("span", marks[check.holds][0], class_=marks[check.holds][1], aria_label=marks[check.holds][1]),
            element("div", element("b", check.name), element("p", check.found)),
        )
        for check in checks(records)
    ]
    return element("section", element("h2", "Can the numbers be trusted?"), element("ul", *rows, class_="checks"))


def _timings(environment: Mapping[str, Any], again: bool) -> Markup:
    timings = environment.get("timings")
    if not isinstance(timings, Mapping):
        return Markup()
    stages = {str(stage): seconds for stage in timings if (seconds := number(timings, stage)) is not None}
    if not stages:
        return Markup()
    whole = sum(seconds for stage, seconds in stages.items() if stage != "total")
    rows = [
        element(
            "tr",
            element("th", stage, scope="row"),
            element("td", duration(seconds)),
            element("td", bar(seconds / whole if whole else 0.0), class_="wide"),
        )
        for stage, seconds in stages.items()
    ]
    if "total" not in stages:
        rows.append(element("tr", element("th", "total", scope="row"), element("td", duration(whole)), element("td")))
    table = element("table", element("tbody", *rows), class_="timings")
    depends = "the figures above do not depend on it" if again else "budgets above are CPU time on it too"
    note = element("p", f"Wall time on the machine below; {depends}.", class_="note")
    return element("section", element("h2", "Where the time went"), element("div", table, class_="scroll"), note)


def _environment(environment: Mapping[str, Any]) -> Markup:
    own = ("timings", "command", "config")
    rows = [
        element("tr", element("th", name, scope="row"), element("td", value))
        for name, value in _flat({name: value for name, value in environment.items() if name not in own})
    ]
    if not rows:
        return Markup()
    table = element("table", element("tbody", *rows), class_="plain")
    return element("section", element("h2", "The machine"), element("div", table, class_="scroll"))


def _flat(table: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    """A table of tables as rows: (`packages numpy`, `2.4`)."""
    for name, value in table.items():
        full = f"{above} {name}".strip()
        if isinstance(value, Mapping):
            yield from _flat(value, full)
        elif value is not None:
            yield full, plain(value)


def _rerun(environment: Mapping[str, Any], again: bool) -> Markup:
    same = (
        "The same seeds give the same runs in report.json, bit for bit; its environment and its measured times differ. "
        if again
        else "Budgets are CPU time here: even the same seeds give other figures the next time. "
    )
    command = environment.get("command") or "nile run CONFIG.toml --out DIR"
    parts = [
        element("p", "From the folder it was run in:", class_="prose"),
        element("pre", element("code", command)),
        element(
            "p",
            same,
            element("code", "nile run --example"),
            " prints a commented config to start another experiment from.",
            class_="prose",
        ),
    ]
    if environment.get("config"):
        config = element("pre", element("code", environment["config"]))
        parts.append(element("details", element("summary", "The config of this report"), config))
    return element("section", element("h2", "Run it again"), *parts)


COLUMNS = (
    ("preference", None),
    ("budget", "asked"),
    ("seed", None),
    ("costs", None),
    ("pairs", "count"),
    ("records", "count"),
    ("recall", "share"),
    ("false_pairs", "count"),
    ("hist_mse_key", "distance"),
    ("hist_mse_age", "distance"),
    ("outlier_precision", "share"),
    ("outlier_recall", "share"),
    ("mean_age_s", "seconds"),
    ("coverage", "share"),
    ("budget_unit", None),
    ("budget_spent", "asked"),
    ("fraction_spent", "share"),
    ("insert_cost", "count"),
    ("hit_cost", "count"),
    ("outputs_per_input", "distance"),
    ("tuples_in", "count"),
    ("tuples_shed", "count"),
)


def _every_run(records: Sequence[Record]) -> Markup:
    if not records:
        return Markup()
    heads = [column("method"), *(column(name.removesuffix("_s").replace("_", " ")) for name, _ in COLUMNS)]
    rows = []
    for record in records:
        guide = record.get("guide")
        method = f"{record.get('method')}/{guide}" if guide else record.get("method")
        cells = [element("td", _entry(record, name, unit)) for name, unit in COLUMNS]
        rows.append(element("tr", element("th", method, scope="row"), *cells))
    table = element("table", element("thead", element("tr", *heads)), element("tbody", *rows), class_="runs")
    told = f"All {len(records)} runs" if len(records) > 1 else "The run"
    return element(
        "section",
        element("h2", "Every run"),
        element("details", element("summary", told), element("div", table, class_="scroll")),
        element("p", "report.json, beside this page, has every figure unrounded.", class_="note"),
    )


def _entry(record: Record, name: str, unit: str | None) -> str:
    if unit is None:
        return "–" if record.get(name) is None else plain(record[name])
    value = number(record, name)
    if unit == "asked":
        return "–" if value is None else tick(Amount.of(value, str(record.get("budget_unit") or "fraction")))
    if unit == "count":
        return "–" if value is None else grouped_digits(value)
    return shown(value, unit)
