"""Figure 9 again: the structures T1 to T4 in insert cost, hit cost and outputs an input, beside the scan.

The paper draws them in a fixed order: each structure costs more to insert into than the one before, and less to
hit.  Here the order is measured, and where it differs the reason is worked out from what the runs counted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nile.report.pages.markup import Markup, element
from nile.report.pages.svg import bar
from nile.report.pages.tables import table
from nile.report.runs import Record, number
from nile.report.wording import Amount, asked, grouped_digits, listing, percent, plain_number, tick

__all__ = ["SAID", "Finding", "Structure", "compared", "figure_9", "findings", "order", "reasons"]

LEVEL = 0.01
"""Costs that differ by at most this much of the larger are equal."""

SAID = (
    "The paper's Figure 9 has T1, T2, T3, T4 in this order on both axes: each costs more to insert into than the one "
    "before, and less to hit. Its opponent scans the window."
)

_NAMES = {
    "scan": "scan, the opponent",
    "T1": "T1: no summary",
    "T2": "T2: time zones",
    "T3": "T3: value × fixed zones",
    "T4": "T4: value × self-adjusting zones",
}


_FIGURES = (
    "insert_cost", "hit_cost", "outputs_per_input", "zones", "zones_changed", "regions_per_tuple", "sketch_rows",
    "not_taken",
)  # fmt: skip
"""The fields of a Structure after its name, as records call them."""


@dataclass(frozen=True, slots=True)
class Structure:
    """What a structure cost, means over seeds.  name: T1 to T4, or scan.  zones: ended, `changed` of them on a change.

    regions: promising regions a tuple; rows: of a count sketch; rate: outputs an input.
    """

    name: str
    t_ins: float
    t_hit: float
    rate: float
    zones: float
    changed: float
    regions: float
    rows: float
    not_taken: float


def compared(records: Sequence[Record], costs: str, budget: float) -> dict[str, Structure]:
    """The structures of `paper` that were run under this cost table and budget, and `scan`, by name, in that order.

    Under the first preference that the records have.
    """
    preference = next((record.get("preference") for record in records), None)
    found: dict[str, list[Record]] = {}
    for record in records:
        name = _name(record)
        alike = (record.get("costs"), number(record, "budget"), record.get("preference")) == (costs, budget, preference)
        if name in _NAMES and alike:
            found.setdefault(name, []).append(record)
    told = {}
    for name in _NAMES:
        mine = [one for one in found.get(name, ()) if number(one, "hit_cost") is not None]
        if mine:
            told[name] = Structure(
                name,
                *(_mean(mine, key) for key in _FIGURES),
            )
    return told


def order(values: Mapping[str, float]) -> str:
    """`scan = T1 1 < T2 = T3 27 < T4 31`: the names by value, least first, equal ones together."""
    ranked = sorted(values, key=lambda name: (values[name], name))
    groups: list[list[str]] = []
    for name in ranked:
        if groups and _level(values[groups[-1][0]], values[name]):
            groups[-1].append(name)
        else:
            groups.append([name])
    return " < ".join(f"{' = '.join(group)} {plain_number(values[group[-1]])}" for group in groups)


def reasons(told: Mapping[str, Structure]) -> list[str]:
    """Why the order differs from the paper's, a sentence for each neighbouring pair where it does."""
    lines = []
    for one, two in (("T1", "T2"), ("T2", "T3"), ("T3", "T4")):
        if one in told and two in told:
            a, b = told[one], told[two]
            if not a.t_ins < b.t_ins or _level(a.t_ins, b.t_ins):
                lines.append(_why_insert(a, b))
            if not a.t_hit > b.t_hit or _level(a.t_hit, b.t_hit):
                lines.append(_why_hit(a, b))
    return lines


@dataclass(frozen=True, slots=True)
class Finding:
    """Figure 9 under one cost table, at the greatest budget, in words."""

    costs: str
    title: str
    lines: tuple[str, ...]
    told: Mapping[str, Structure]
    budgets: tuple[Amount, ...]


def findings(records: Sequence[Record]) -> list[Finding]:
    """One for each cost table, when `paper` was run over two structures or more; else none."""
    mine = [record for record in records if _name(record) in _NAMES]
    if len({_name(record) for record in mine} - {"scan"}) < 2:
        return []
    unit = str(mine[0].get("budget_unit") or "fraction")
    amounts = sorted({value for record in mine if (value := number(record, "budget")) is not None})
    budgets = tuple(Amount.of(amount, unit) for amount in amounts)
    found = []
    for costs in dict.fromkeys(str(record.get("costs")) for record in mine):
        told = compared(mine, costs, budgets[-1])
        if not told:
            continue
        shed = [f"{percent(one.not_taken)} by {one.name}" for one in told.values() if one.not_taken > LEVEL]
        lines = [
            f"Insertion (Figure 9a): {order({name: one.t_ins for name, one in told.items()})}.",
            f"Hit (Figure 9b): {order({name: one.t_hit for name, one in told.items()})}.",
            *(reasons(told) or ["That is the order of the paper."]),
            *([f"Not every tuple was taken in: {listing(shed)} were not, which costs nothing."] if shed else []),
            _most(mine, costs, told, budgets),
        ]
        found.append(Finding(costs, f"{costs} costs, at a budget of {asked(budgets[-1])}", tuple(lines), told, budgets))
    return found


def figure_9(records: Sequence[Record]) -> Markup:
    """The section of the page, a part for each of `findings`; nothing where there are none."""
    found = findings(records)
    if not found:
        return Markup()
    return element(
        "section",
        element("h2", "Figure 9: the structures"),
        element("p", SAID, class_="prose"),
        *(_part(records, one) for one in found),
    )


def _part(records: Sequence[Record], one: Finding) -> Markup:
    return element(
        "div",
        element("h3", one.title),
        element("div", _table(one.told), class_="scroll"),
        element("ul", *(element("li", line) for line in one.lines), class_="prose"),
        element(
            "details",
            element("summary", f"Outputs an input by budget, {one.costs} costs (Figure 9c)"),
            element("div", _by_budget(records, one), class_="scroll"),
        ),
    )


def _table(told: Mapping[str, Structure]) -> Markup:
    insert, hit = max(one.t_ins for one in told.values()), max(one.t_hit for one in told.values())
    rows = [
        element(
            "tr",
            element("th", _NAMES[name], scope="row"),
            element("td", plain_number(one.t_ins)),
            element("td", bar(one.t_ins / insert if insert else 0.0), class_="wide"),
            element("td", plain_number(one.t_hit)),
            element("td", bar(one.t_hit / hit if hit else 0.0), class_="wide"),
            element("td", plain_number(one.rate)),
            element("td", "–" if name in ("scan", "T1") else grouped_digits(one.zones)),
            element("td", "–" if name in ("scan", "T1") else grouped_digits(one.changed)),
        )
        for name, one in told.items()
    ]
    heads = ("structure", "t_ins", "", "t_hit", "", "outputs an input", "zones ended", "of them on a change")
    head = element("tr", *(element("th", name, scope="col") for name in heads))
    return element("table", element("thead", head), element("tbody", *rows), class_="timings")


def _by_budget(records: Sequence[Record], one: Finding) -> Markup:
    rows = []
    for budget in one.budgets:
        here = compared(records, one.costs, budget)
        rows.append((tick(budget), *(plain_number(here[name].rate) if name in here else "–" for name in one.told)))
    return table(("budget", *one.told), rows)


def _most(records: Sequence[Record], costs: str, told: Mapping[str, Structure], budgets: Sequence[Amount]) -> str:
    """Which structure puts out most at each budget: what the paper draws in 9c, where T4 always does."""
    winners: dict[str, list[Amount]] = {}
    for budget in budgets:
        here = {name: one.rate for name, one in compared(records, costs, budget).items()}
        if here:
            best = max(here.values())
            names = " = ".join(name for name in told if name in here and _level(here[name], best))
            winners.setdefault(names, []).append(budget)
    parts = [f"{names} at {listing([tick(one) for one in at])}" for names, at in winners.items()]
    return f"Outputs an input (Figure 9c, where T4 has the most): most by {'; '.join(parts)}."


def _why_insert(a: Structure, b: Structure) -> str:
    if _level(a.t_ins, b.t_ins):
        same = f"{a.name} = {b.name} on insertion"
        if a.rows == b.rows and _level(a.zones, b.zones):
            return (
                f"{same}: both update {a.rows:g} counters per tuple, one in each row of a sketch, whether or not the "
                f"sketches are split by value, and both ended {grouped_digits(a.zones)} zones, whose counters "
                "are added up alike."
            )
        return f"{same}: {_zones(a, b)}."
    return f"{a.name} costs more to insert into than {b.name}: {_zones(a, b)}."


def _why_hit(a: Structure, b: Structure) -> str:
    if _level(a.t_hit, b.t_hit):
        same = f"{a.name} = {b.name} on hits"
        if b.name == "T4":
            return f"{same}: {_changes(a, b)}"
        return f"{same}: a tuple has {plain_number(a.regions)} promising regions with either."
    if b.name == "T4":
        return (
            f"T4 costs more to hit than T3: it ended {grouped_digits(b.changed)} of its {grouped_digits(b.zones)} "
            f"zones on a change, so a tuple has {plain_number(b.regions)} promising regions against "
            f"{plain_number(a.regions)}, each with estimates to read and an entry to queue, and what their borders "
            "gain does not pay for that."
        )
    return (
        f"{b.name} costs more to hit than {a.name}: a tuple has {plain_number(b.regions)} promising regions against "
        f"{plain_number(a.regions)}, each with estimates to read and an entry to queue, and looks at nearly as many "
        "tuples."
    )


def _changes(fixed: Structure, adjusting: Structure) -> str:
    """Why zones that adjust themselves came out as fixed ones do."""
    zones, changed = grouped_digits(adjusting.zones), grouped_digits(adjusting.changed)
    if not adjusting.changed:
        return (
            f"not one of the {zones} zones of T4 ended on a change; where a stream does not change, self-adjusting "
            "zones are fixed ones."
        )
    if _level(fixed.zones, adjusting.zones):
        return (
            f"{changed} of the {zones} zones of T4 ended on a change, but T3 ended as many zones: MAXLENGTH ends them "
            "at the same slices, or close by."
        )
    return f"only {changed} of the {zones} zones of T4 ended on a change."


def _zones(a: Structure, b: Structure) -> str:
    return f"{a.name} ended {grouped_digits(a.zones)} zones, {b.name} {grouped_digits(b.zones)}"


def _name(record: Record) -> str:
    """T1 to T4 for a run of `paper`, else the method."""
    method = str(record.get("method"))
    return str(record.get("structure")) if method.split("/")[0] == "paper" else method


def _level(one: float, other: float) -> bool:
    return abs(one - other) <= LEVEL * max(abs(one), abs(other))


def _mean(records: Sequence[Record], key: str) -> float:
    values = [value for record in records if (value := number(record, key)) is not None]
    return math.fsum(values) / len(values) if values else 0.0
