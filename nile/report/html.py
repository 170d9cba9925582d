"""The page of a report: one file, no request to anywhere, legible in the dark, on paper and on a phone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nile.report import prose
from nile.report.appendix import appendix, column, plain
from nile.report.budgets import UNITS
from nile.report.cells import value_cell
from nile.report.document import document
from nile.report.markup import Markup, element, joined
from nile.report.measures import measures, with_measured
from nile.report.runs import FIGURES, Curve, Figure, Runs, grouped, number
from nile.report.structures import figure_9
from nile.report.svg import chart, ideal_swatch, swatch
from nile.report.verdict import Comparison, Outcome, duels
from nile.report.wording import grouped_digits, span, tick, times

__all__ = ["render"]

FIRST = {
    "desc": ("recall", "mean_age_s"),
    "weighted": ("hist_mse_key", "hist_mse_age"),
    "asc": ("outlier_recall", "outlier_precision"),
}
"""The figures a preference is about; the others of FIGURES fold away below them."""

SIGNS = {Outcome.AHEAD: "▲", Outcome.LEVEL: "=", Outcome.BEHIND: "▼", Outcome.ABSENT: "–"}


def render(report: Mapping[str, Any], pictures: Sequence[Markup] = ()) -> str:
    """The whole page as HTML text, from a report.json read into a dict.

    pictures: figures of the summaries (`nile.report.heatmap`), shown before the appendix.

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
        yield _verdict(runs)
        yield from (_preference(runs, name) for name in runs.preferences)
        yield measures(runs)


def _verdict(runs: Runs) -> Markup:
    told = prose.verdicts(runs)
    if not told or runs.champion is None:
        return Markup()
    blocks = []
    for each in told:
        opponent = "" if not each.rival.is_nile else " (the same engine, guided by exact key counts)"
        blocks.append(
            element(
                "div",
                element("h3", f"{runs.champion.name} against {each.rival.name}{opponent}"),
                element("p", each.tally, class_="reading"),
                _matrix(runs, each),
                element(
                    "div",
                    _bullets("Ahead", "ahead", each.pays),
                    _bullets("Level or behind", "behind", each.does_not),
                    class_="pair",
                ),
                class_="duel",
            )
        )
    note = f"{prose.level_means(runs)} Numbers say how many times better. {prose.conditions(runs)}"
    return element(
        "section",
        element("h2", "Where the summaries pay, and where they do not"),
        *blocks,
        element("p", note, class_="note"),
    )


def _bullets(title: str, kind: str, lines: Sequence[str]) -> Markup:
    items = [element("li", line) for line in lines] or [element("li", "Nowhere.")]
    return element("div", element("h4", title, class_=kind), element("ul", *items))


def _matrix(runs: Runs, told: prose.Verdicts) -> Markup:
    """Questions down, budgets across: who is ahead, and how many times better."""
    head = element("tr", element("th", "", scope="col"), *(column(tick(budget)) for budget in runs.budgets))
    rows = []
    for held in duels(runs, told.rival):
        name = joined(element("b", held.preference), " ", held.figure.title)
        cells = [_cell(held.figure, one) for one in held.comparisons]
        rows.append(element("tr", element("th", name, scope="row"), *cells))
    table = element("table", element("thead", head), element("tbody", *rows), class_=f"matrix n{len(runs.budgets)}")
    return element("div", table, class_="scroll")


def _cell(figure: Figure, one: Comparison) -> Markup:
    if one.outcome in (Outcome.LEVEL, Outcome.ABSENT):
        words = "level" if one.outcome is Outcome.LEVEL else ""
    elif one.mine is None:
        words = "no output"
    elif one.theirs is None:
        words = "only output"
    elif one.ratio:
        words = f"{times(one.ratio)}×"
    elif figure.unit == "distance":
        words = "exact" if one.outcome is Outcome.AHEAD else "not exact"
    else:
        words = "from none" if one.outcome is Outcome.AHEAD else "none"
    return element("td", f"{SIGNS[one.outcome]} {words}".strip(), class_=one.outcome.value)


def _preference(runs: Runs, preference: str) -> Markup:
    title, meaning = prose.PREFERENCES.get(preference, (_raised(preference), ""))
    cap = runs.of("outlier_cap")
    if preference == "asc" and cap is not None:
        meaning += (
            f" A key is rare while both streams together have at most {cap} tuples of it in the window, at the "
            "moment the pair is complete. The paper's own definition folds away below."
        )
    first = [FIGURES[key] for key in FIRST.get(preference, ("recall",))]
    rest = [figure for figure in FIGURES.values() if figure not in first]
    more = element(
        "details",
        element("summary", f"The other figures under {preference}"),
        element("div", *(_chart(runs, preference, figure) for figure in rest), class_="charts"),
        class_="more",
    )
    return element(
        "section",
        element("h2", title, " ", element("code", preference)),
        element("p", meaning, class_="prose"),
        element("div", *(_chart(runs, preference, figure) for figure in first), class_="charts"),
        more,
        class_="question",
    )


def _chart(runs: Runs, preference: str, figure: Figure) -> Markup:
    curves = runs.curves(preference, figure.key)
    ideals = runs.curves(preference, figure.ideal) if figure.ideal else ()
    said = prose.reading(runs, preference, figure)
    legend = [element("li", swatch(curve.series), curve.series.name) for curve in curves]
    if ideals:
        legend.append(element("li", ideal_swatch(), "ideal: a uniform sample of as many pairs"))
    reference = number(runs.records[0], "exact_mean_age_s") if figure.key == "mean_age_s" else None
    drawing = Markup()
    if runs.budgets and any(curve.points for curve in curves):
        label = f"{figure.title} under {preference}. {said}"
        drawing = joined(
            element("ul", *legend, class_="legend"),
            element("p", figure.axis, class_="axis"),
            chart(figure, curves, ideals, runs.budgets, label=label, reference=reference),
            element("p", f"budget: {UNITS[runs.unit]} (log scale)", class_="axis across"),
        )
    return element(
        "figure",
        element("figcaption", element("h3", figure.title), element("p", said, class_="reading")),
        drawing,
        element("p", prose.conditions(runs), class_="note"),
        _numbers(runs, figure, curves, ideals),
        class_="chart",
    )


def _numbers(runs: Runs, figure: Figure, curves: Sequence[Curve], ideals: Sequence[Curve]) -> Markup:
    """The table of a chart: a row a budget, a column a series, the ideal in a column of its own."""
    columns = [(curve.series.name, curve) for curve in curves]
    columns += [(f"ideal for {curve.series.name}", curve) for curve in ideals]
    head = element("tr", column("budget"), *(column(name) for name, _ in columns))
    rows = [
        element(
            "tr",
            element("th", tick(budget), scope="row"),
            *(value_cell(figure, curve.at(budget), len(runs.seeds)) for _, curve in columns),
        )
        for budget in runs.budgets
    ]
    table = element("table", element("thead", head), element("tbody", *rows))
    return element("details", element("summary", "Numbers"), element("div", table, class_="scroll"))


def _raised(text: str) -> str:
    return text[:1].upper() + text[1:]
