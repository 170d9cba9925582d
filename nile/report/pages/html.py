"""The page of a report: one file, no request to anywhere, legible in the dark, on paper and on a phone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nile.report.pages import prose
from nile.report.pages.appendix import appendix, plain
from nile.report.pages.budgets import UNITS
from nile.report.pages.document import document
from nile.report.pages.duels import verdict_section
from nile.report.pages.markup import Markup, element
from nile.report.pages.measures import measures, with_measured
from nile.report.pages.questions import preference_section
from nile.report.pages.structures import figure_9
from nile.report.runs import Runs, grouped
from nile.report.wording import grouped_digits, span, tick

__all__ = ["render"]


def render(report: Mapping[str, Any], pictures: Sequence[Markup] = ()) -> str:
    """The whole page as HTML text, from a report.json read into a dict.

    pictures: figures of the summaries (`nile.report.pages.heatmap`), shown before the appendix.

    report["runs"]: records as the runner writes them; a figure that is null or absent is left out of its chart.
    `dataset` of a record: its name, or a table of name, left, right and key as text.  `budget_spent`: in the
    unit of `budget`.  report["environment"]: any table; of it "timings" (stage: seconds), "command" and
    "config" (text) have places of their own.  report["measured"]: times on this machine, by number of run.
    """
    records = [record for record in report.get("runs") or () if isinstance(record, Mapping)]
    environment = report.get("environment")
    environment = environment if isinstance(environment, Mapping) else {}
    groups = grouped(with_measured(records, report.get("measured")))
    main = [
        _header(groups),
        figure_9(records),
        *_settings(groups),
        _summaries(pictures),
        appendix(records, environment),
    ]
    return document("Nile: a join on a budget", *main)


def _summaries(pictures: Sequence[Markup]) -> Markup:
    if not pictures:
        return Markup()
    told = (
        "What the count sketches of each stream looked like at its end: the zones that the change detector and "
        "the granularities made, and how full their value buckets were."
    )
    return element(
        "section",
        element("h2", "The summaries, seen"),
        element("p", told, class_="prose"),
        element("div", *pictures, class_="charts"),
    )


# --- the head of the page ---------------------------------------------------------------------------------


def _header(groups: Sequence[Runs]) -> Markup:
    if not groups:
        return element(
            "header",
            element("p", "Nile", class_="eyebrow"),
            element("h1", "A join on a budget"),
            element("p", "This report holds no runs.", class_="headline"),
        )
    runs = groups[0]
    return element(
        "header",
        element("p", "Nile, approximate joins over streams", class_="eyebrow"),
        element("h1", "A join on a budget"),
        element("p", prose.headline(runs), class_="headline"),
        _facts(runs, sum(len(group.records) for group in groups)),
    )


def _facts(runs: Runs, count: int) -> Markup:
    window, exact, tuples = runs.of("window_s"), runs.of("exact_pairs"), runs.of("tuples_in")
    facts = [
        ("exact pairs", grouped_digits(exact) if exact is not None else "–"),
        ("tuples in", grouped_digits(tuples) if tuples is not None else "–"),
        ("window", "whole stream" if window is None else span(float(window))),
        (
            "budgets" if runs.unit == "fraction" else f"budgets, {UNITS[runs.unit]}",
            " – ".join(dict.fromkeys(tick(budget) for budget in (*runs.budgets[:1], *runs.budgets[-1:]))),
        ),
        ("runs", grouped_digits(count)),
    ]
    return element(
        "dl", *(element("div", element("dt", name), element("dd", value)) for name, value in facts), class_="facts"
    )


# --- one setting ------------------------------------------------------------------------------------------


SETTINGS = {
    "dataset": "data",
    "window_s": "window in seconds",
    "output": "output",
    "costs": "cost table",
    "replay": "pacing",
    "replay_mean_s": "mean gap in seconds",
    "bursts": "bursts",
    "speed": "played back faster by",
    "budget_unit": "budgets in",
    "fade": "fade",
    "outlier_cap": "outlier cap",
    "forgetting": "forgetting",
}
"""What may differ between groups of runs, as their titles call it."""


def _settings(groups: Sequence[Runs]) -> Iterator[Markup]:
    """Each group of comparable runs: what was done (what differs from the group before), verdict, figures."""
    values = [{name: plain(group.of(name)) for name in SETTINGS} for group in groups]
    differing = [name for name in SETTINGS if len({value[name] for value in values}) > 1]
    told: dict[str, str] = {}
    for runs, value in zip(groups, values, strict=True):
        title = _raised(", ".join(f"{SETTINGS[name]}: {value[name]}" for name in differing))
        head = element("h2", title, class_="setting") if title else Markup()
        story = prose.story(runs)
        parts = [
            element("div", element("h3", name), element("p", text))
            for name, text in story.items()
            if told.get(name) != text
        ]
        heading = "What was done differently" if told else "What was done"
        done = element("section", element("h2", heading), element("div", *parts, class_="story"))
        yield from (done, head) if not told else (head, done if parts else Markup())
        told = story
        yield verdict_section(runs)
        yield from (preference_section(runs, name) for name in runs.preferences)
        yield measures(runs)


def _raised(text: str) -> str:
    return text[:1].upper() + text[1:]
