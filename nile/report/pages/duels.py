"""Where the summaries pay and where they do not: the champion of some runs against each rival, as a section."""

from __future__ import annotations

from collections.abc import Sequence

from nile.report.pages import prose
from nile.report.pages.appendix import column
from nile.report.pages.markup import Markup, element, joined
from nile.report.runs import Figure, Runs
from nile.report.verdict import Comparison, Outcome, duels
from nile.report.wording import tick, times

__all__ = ["verdict_section"]

SIGNS = {Outcome.AHEAD: "▲", Outcome.LEVEL: "=", Outcome.BEHIND: "▼", Outcome.ABSENT: "–"}


def verdict_section(runs: Runs) -> Markup:
    """A part for each rival; nothing where there is none."""
    told = prose.verdicts(runs)
    if not told or runs.champion is None:
        return Markup()
    blocks = []
    for each in told:
        by = "exact key counts" if each.rival.name.endswith("directory") else "count sketches"
        opponent = f" (the same engine, guided by {by})" if each.rival.is_nile else ""
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
        words = "vs 0" if one.outcome is Outcome.AHEAD else "none"
    return element("td", f"{SIGNS[one.outcome]} {words}".strip(), class_=one.outcome.value)
