"""The page of the atlas: one file for all experiments, made from what atlas.json holds and nothing else."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nile.experiments.atlas.drawing import panel_chart, panel_name, place
from nile.report.pages.document import document
from nile.report.pages.markup import Markup, element
from nile.report.wording import grouped_digits, listing, shown

__all__ = ["render"]

Table = Mapping[str, Any]

SIGNS = {
    "holds": ("▲", "ahead"),
    "holds in part": ("△", "level"),
    "undecided": ("◇", "level"),
    "does not hold": ("▼", "behind"),
}
_WORK = {"join": "the exact work", "selection": "the work of naive for the queries of `load`"}
"""What a capacity is a share of, by kind."""
AUTHORS = {"paper": "The paper claims", "nile": "We expect"}


def render(atlas: Table) -> str:
    """The whole page as HTML text, from an atlas.json read into a dict."""
    experiments = [each for each in atlas["experiments"] if each["panels"]]
    return document(
        "Nile: the atlas",
        _header(atlas, experiments),
        _reading(),
        _overview(experiments),
        *(_experiment(each, atlas) for each in experiments),
        _appendix(atlas),
    )


def _header(atlas: Table, experiments: Sequence[Table]) -> Markup:
    environment = atlas["environment"]
    facts = [
        ("experiments", grouped_digits(len(experiments))),
        ("figures measured", grouped_digits(sum(1 for each in experiments for _ in _points(each)))),
        ("seeds", listing([str(n) for n in sorted({each["seeds"] for each in experiments})], "or") or "–"),
        ("run", "quick" if atlas["quick"] else "full"),
        ("commit", str(environment.get("commit") or environment.get("nile") or "–")),
    ]
    return element(
        "header",
        element("p", "Nile, approximate answers over streams", class_="eyebrow"),
        element("h1", "The atlas"),
        element("p", _headline(experiments), class_="headline"),
        element(
            "dl", *(element("div", element("dt", name), element("dd", value)) for name, value in facts), class_="facts"
        ),
    )


def _headline(experiments: Sequence[Table]) -> str:
    """How many of the papers' claims hold, counted over claims, panels and subjects."""
    if not experiments:
        return "This run measured nothing."
    verdicts = [one for each in experiments for panel in each["panels"] for one in panel["verdicts"]]
    papers = [one for one in verdicts if one["by"] == "paper"]
    theirs = [one["verdict"] for one in papers if not one["by_construction"]]
    if not papers:
        return "None of these experiments repeats a claim of a paper."
    counted = {name: theirs.count(name) for name in SIGNS}
    return (
        f"The figures of the papers, run again. Their claims were checked {grouped_digits(len(theirs))} times, each on "
        f"one data set, with one cost table, for one method: {counted['holds']} times the claim holds, "
        f"{counted['holds in part']} times at some places only, {counted['does not hold']} times it does not hold, and "
        f"{counted['undecided']} times the seeds differ too much to say."
        + (f" {len(papers) - len(theirs)} more are true by construction." if len(papers) > len(theirs) else "")
    )


def _reading() -> Markup:
    told = (
        "Every experiment below repeats one figure. It says what the paper claims and what we expected before we "
        "measured; then it draws what was measured, and judges both by rules that are part of the experiment's file. "
        "Nobody writes a verdict by hand. A place is decided where the differences between the two methods, seed by "
        "seed, leave no doubt (95 %); a tie is not ahead. A claim holds in part where some places keep it, and the "
        "first place that does not is named. What our design makes a tautology is marked as true by construction, with "
        "the reason, and is not counted. Figures of different capacity are of different machines. "
        "paper is the algorithm as it was printed, nile is this system; all other "
        "methods are opponents, drawn with dashes. The paper's own opponents are hash-drop (its SIMPLE-SHJ: a "
        "symmetric hash join that drops what it cannot finish), scan (which looks at every tuple of the window) and "
        "naive (its SIMPLE-Selection: every query is fed for itself); hash-backlog, predicate-index and shed-uniform, "
        "which drops tuples at random, are harder to beat. Of window joins and pipelines the paper's algorithms have "
        "its names: nlw and bew evaluate backward, mw and few forward, hw is the hashed nlw; nta sends negative "
        "tuples, tpa probes for the time, ita, the opponent, waits for input. Unless a figure says that it is a time, "
        "work is counted in operations and priced by a fixed cost table (engine prices each operation with a whole "
        "engine around it, memory prices the bare operation), so that the same run gives the same figures on every "
        "machine."
    )
    return element("section", element("h2", "How to read this"), element("p", told, class_="prose"))


def _overview(experiments: Sequence[Table]) -> Markup:
    """A row an experiment: how the paper's claims came out for its own method and for nile, and how ours did."""
    names = ("experiment", "figure", "paper's claims: its method", "paper's claims: nile", "our expectations")
    rows = [
        element(
            "tr",
            element("th", element("a", each["name"], href=f"#{each['name']}"), scope="row"),
            element("td", each["title"]),
            *(
                element("td", told, data_name=name)  # which is shown where the columns stand below each other
                for name, told in zip(names[2:], _tallies(each), strict=True)
            ),
        )
        for each in experiments
    ]
    head = element("tr", *(element("th", name, scope="col") for name in names))
    table = element("table", element("thead", head), element("tbody", *rows), class_="overview")
    return element(
        "section", element("h2", "All experiments, and how they came out"), element("div", table, class_="scroll")
    )


def _tallies(each: Table) -> tuple[str, str, str]:
    return _tally(each, "paper", printed=True), _tally(each, "paper", printed=False), _tally(each, "nile")


def _tally(each: Table, author: str, *, printed: bool | None = None) -> str:
    """`12 of 16 hold, 2 in part`; printed: of the paper's own method alone, or of all others."""
    asked = [
        one
        for panel in each["panels"]
        for one in panel["verdicts"]
        if one["by"] == author and printed in (None, _is_printed(each, one["subject"]))
    ]
    found = [one["verdict"] for one in asked if not one["by_construction"]]
    given = len(asked) - len(found)
    if not found:
        return f"{given} by construction" if given else "–"
    rest = {"in part": "holds in part", "undecided": "undecided"}
    some = [f", {found.count(verdict)} {words}" for words, verdict in rest.items() if verdict in found]
    some += [f", {given} by construction"] if given else []
    return f"{found.count('holds')} of {len(found)} hold{''.join(some)}"


def _is_printed(each: Table, subject: str) -> bool:
    """Whether a subject is the paper's algorithm: no opponent, and not named after this system."""
    return subject in each["methods"] and each["methods"][subject]["own"] and not subject.startswith("nile")


# --- one experiment ---------------------------------------------------------------------------------------


def _experiment(each: Table, atlas: Table) -> Markup:
    charts = [panel_chart(each, panel, metric) for metric in each["metrics"] for panel in each["panels"]]
    again = ["nile", "experiment", "run", each["name"], *atlas["environment"].get("again", ()), "--out", "atlas"]
    told = [
        element("p", element("b", "Claimed: "), each["says"], class_="prose"),
        element("p", element("b", "Expected: "), each["expect"], class_="prose"),
        element("p", element("b", "Capacity: "), _capacity(each), class_="prose"),
    ]
    notes = []
    if each["by_clock"]:
        notes.append(
            f"Times of this machine, which differ from run to run: medians of {each['seeds']} rounds in which the "
            "methods take turns."
        )
    if each["missing"]:
        named = listing([panel_name(one) for one in each["missing"]])
        notes.append(f"Not measured, for want of data: {named}. Name a file with --data.")
    return element(
        "section",
        element("h2", each["title"], " ", element("code", each["name"])),
        element("p", each["source"], class_="eyebrow"),
        *told,
        *_verdicts(each),
        element("div", *charts, class_="charts"),
        *(element("p", note, class_="note") for note in notes),
        _settings(each),
        element("p", "Run this again: ", element("code", shlex.join(again)), class_="note"),
        id=each["name"],
        class_="question",
    )


def _capacity(each: Table) -> str:
    """How fast the machine is taken to be."""
    capacity, speed = (listing([f"{value:g}" for value in each["machine"][name]]) for name in ("capacity", "speed"))
    if capacity:
        return f"{capacity} times {_WORK[each['kind']]}, done while tuples arrive every 100 ms."
    if speed:
        return f"{grouped_digits(each['machine']['speed'][0])} operations a second."
    if each["by_clock"]:
        return "that of this machine."
    return "none, since " + ("the budget is given." if each["axis"]["option"] == "budget" else "work is counted.")


def _settings(each: Table) -> Markup:
    """What every point was measured with, and what each method sets."""
    told = [("all points", each["options"]["all"]), ("on real data", each["options"]["real"])]
    told += [("in a quick run", each["options"]["quick"])]
    told += [(name, method["options"]) for name, method in each["methods"].items()]
    rows = [
        element(
            "tr",
            element("th", name, scope="row"),
            element("td", ", ".join(f"{option} {value}" for option, value in options.items())),
        )
        for name, options in told
        if options
    ]
    table = element("table", element("tbody", *rows), class_="plain")
    return element("details", element("summary", "Settings"), element("div", table, class_="scroll"))


def _verdicts(each: Table) -> Iterator[Markup]:
    """A table a claim: subjects down, panels across."""
    claims: dict[tuple[str, str], list[tuple[Table, Table]]] = {}
    for panel in each["panels"]:
        for one in panel["verdicts"]:
            claims.setdefault((one["by"], one["says"]), []).append((panel["panel"], one))
    for (author, says), found in claims.items():
        panels = list({panel_name(panel): panel for panel, _ in found})
        subjects = list(dict.fromkeys(one["subject"] for _, one in found))
        head = element("tr", element("th", "", scope="col"), *(element("th", name, scope="col") for name in panels))
        rows = []
        for subject in subjects:
            told = {panel_name(panel): one for panel, one in found if one["subject"] == subject}
            cells = [_cell(each, told.get(name)) for name in panels]
            rows.append(element("tr", element("th", subject, scope="row"), *cells))
        yield element(
            "div",
            element("p", element("b", f"{AUTHORS[author]}: "), says, class_="reading"),
            *_constructed([one for _, one in found], subjects),
            element(
                "div",
                element("table", element("thead", head), element("tbody", *rows), class_=f"matrix n{len(panels)}"),
                class_="scroll",
            ),
            class_="claim",
        )


def _constructed(found: Sequence[Table], subjects: Sequence[str]) -> Iterator[Markup]:
    """Why verdicts cannot be otherwise, and of which subjects, if not of all."""
    for why in dict.fromkeys(one["by_construction"] for one in found if one["by_construction"]):
        about = list(dict.fromkeys(one["subject"] for one in found if one["by_construction"] == why))
        named = "" if about == list(subjects) else f" ({listing(about)})"
        yield element("p", element("b", f"By construction{named}, so it shows nothing: "), why, class_="note")


def _cell(each: Table, one: Table | None) -> Markup:
    if one is None:
        return element("td", "–", class_="absent")
    sign, kind = SIGNS[one["verdict"]]
    kept, places = one["kept"]
    words = f"{sign} {one['verdict']}" + (f" ({kept} of {places})" if one["verdict"] == "holds in part" else "")
    if one["by_construction"]:
        words, kind = f"{words}, by construction", "level" if one["verdict"] == "holds" else kind
    short = [trial for trial in one["trials"] if trial["broken"] or trial["undecided"]]
    worst = min(short, key=lambda trial: trial["broken"] == 0, default=None)
    note = element("span", _where(each, one, worst), class_="spread-text") if worst else Markup()
    return element("td", words, note, class_=kind)


def _where(each: Table, one: Table, broken: Table) -> str:
    """The first place where a claim breaks, or is undecided, with both figures."""
    unit = each["metrics"][one["metric"]]["unit"]
    at = f"at {place(each['axis'], broken['x'], 0).text}"
    if broken["figure"] is None:
        return f"{at}: no such figure, for want of output"
    mine = shown(broken["figure"], unit)
    if broken["opponent"] is None:
        after = " after " + shown(broken["other"], unit) if one["predicate"] in ("grows", "falls") else ""
        return f"{at}: {mine}{after}"
    return f"{at}: {mine}, {broken['opponent']} {shown(broken['other'], unit)}"


def _appendix(atlas: Table) -> Markup:
    environment = atlas["environment"]
    data = atlas["data"]
    rows = [
        ("command", environment.get("command")),
        ("commit", environment.get("commit") or "not a source tree"),
        ("code", atlas["code"]),
        ("machine", f"{environment.get('processor')}, {environment.get('cores')} cores, "
                    f"{environment.get('memory_gib')} GiB, {environment.get('system')}"),
        ("Python", environment.get("python")),
        ("packages", ", ".join(f"{name} {number}" for name, number in environment.get("packages", {}).items())),
        ("written", environment.get("written")),
        ("real data", "none" if data is None else ", ".join(f"{name} {value}" for name, value in data.items())),
    ]  # fmt: skip
    body = [element("tr", element("th", name, scope="row"), element("td", str(value))) for name, value in rows]
    return element(
        "section",
        element("h2", "How this was made"),
        element("div", element("table", element("tbody", *body), class_="plain"), class_="scroll"),
    )


def _points(each: Table) -> Iterator[Table]:
    for panel in each["panels"]:
        for methods in panel["curves"].values():
            for curve in methods.values():
                yield from curve
