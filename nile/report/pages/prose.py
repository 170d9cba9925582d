"""What the numbers say, in plain words and without flattery.  Every sentence is computed from the runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nile.report.pages.budgets import UNITS, budget_story, pacing_of
from nile.report.runs import Figure, Point, Runs, Series
from nile.report.verdict import LEVEL_WITHIN, Comparison, Duel, Outcome, duel, duels
from nile.report.wording import asked, at_budgets, duration, grouped_digits, listing, percent, shown, span, times

__all__ = ["PREFERENCES", "conditions", "headline", "reading", "story", "tally", "verdicts"]

PREFERENCES = {
    "desc": ("Most matches first", "The budget goes to the tuples with the most expected matches."),
    "weighted": (
        "A faithful sample",
        "The output should look like the exact answer, only smaller. Hist-MSE is the squared distance between "
        "their histograms of 100 bins; the ideal is what a uniform sample of as many pairs would have on average. "
        "The distance by key is the weaker test, since counters alone can pass it.",
    ),
    "asc": ("Rare things first", "Only rare keys matter: a pair is an outlier when its key is rare."),
}

OPPONENTS = {
    "hash-drop": "a symmetric hash join that drops the matches it cannot pay for",
    "hash-backlog": "a symmetric hash join that keeps unfinished matches in a last-in-first-out backlog",
    "scan": "a symmetric join that scans the window",
    "hash-buckets": "a symmetric hash join that scans its bucket, of as many as the summary has",
    "shed-uniform": "a symmetric hash join behind an admission threshold that sheds tuples at random",
    "hash-keys": "the exact join of as many keys, chosen by their hash, as the budget pays for",
    "paper": "the promising-tuple join exactly as its paper prints it",
}

MORE = {
    "recall": "as many pairs",
    "found": "as many rows",
    "outlier_recall": "as many outliers",
    "outlier_precision": "as precise",
    "outlier_recall_paper": "as many outliers",
    "outlier_precision_paper": "as precise",
}


@dataclass(frozen=True, slots=True)
class Verdicts:
    """Sentences on where the summaries pay and where they do not, against one rival."""

    rival: Series
    tally: str
    pays: tuple[str, ...]
    does_not: tuple[str, ...]


def headline(runs: Runs) -> str:
    """The page in one sentence: the champion against the first opponent, near a budget of 10 %."""
    champion = runs.champion
    if champion is None or not runs.budgets:
        return "No run of Nile is in this report."
    if runs.unit == "fraction":
        budget = min(runs.budgets, key=lambda one: (abs(one - 0.1), one))
        start = f"With {percent(budget)} of what the exact join costs, {champion.name}"
    else:
        budget = runs.budgets[len(runs.budgets) // 2]
        start = f"With a budget of {asked(budget)}, {champion.name}"
    rival = next(iter(runs.opponents), None)
    if "desc" not in runs.preferences:
        told = next(iter(verdicts(runs)), None)
        return told.tally if told else f"{start} was run without an opponent."
    mine = runs.curve(champion, "desc", "recall").at(budget)
    if mine is None:
        return "The exact join has no pairs, so there is nothing to find."
    whose = "its" if runs.unit == "fraction" else "the exact"
    sentence = f"{start} finds {percent(mine.mean)} of {whose} pairs"
    theirs = runs.curve(rival, "desc", "recall").at(budget) if rival else None
    if rival is None or theirs is None:
        return f"{sentence}."
    return f"{sentence}; {rival.name} finds {percent(theirs.mean)}."


def story(runs: Runs) -> dict[str, str]:
    """What was done: a heading and a paragraph for each part."""
    return {"The streams": _streams(runs), "The budget": budget_story(runs), "The methods": _rivals(runs)}


def conditions(runs: Runs) -> str:
    """What a figure must name to be read alone: opponent, pacing, cost table, output."""
    costs, output = (_told(runs, name) for name in ("costs", "output"))
    named = listing([one.name for one in runs.opponents]) or "none"
    seeds = f" Mean of {len(runs.seeds)} seeds, bars from least to greatest." if len(runs.seeds) > 1 else ""
    pacing = pacing_of(runs)
    unit = "" if runs.unit == "fraction" else f" Budget: {UNITS[runs.unit]}."
    again = "" if runs.is_reproducible else " By the clock of this machine: not reproducible."
    return f"Opponent: {named}. Pacing: {pacing}.{unit} Cost table: {costs}. Output: {output}.{seeds}{again}"


def reading(runs: Runs, preference: str, figure: Figure) -> str:
    """What one chart shows, in one sentence."""
    champion = runs.champion
    if champion is None:
        return "No run of Nile is in this chart."
    points = runs.curve(champion, preference, figure.key).points
    if not points:
        return f"{champion.name} has no value here: {_why_absent(runs, preference, figure)}."
    parts = [_course(champion, figure, points)]
    if figure.ideal:
        parts += _against_ideal(runs, champion, preference, figure)
    if figure.better:
        parts += [f"it is {_standing(duel(runs, preference, figure, champion, one))}" for one in runs.opponents]
    else:
        parts += _others(runs, preference, figure)
    return "; ".join(parts) + "."


def verdicts(runs: Runs) -> list[Verdicts]:
    """Against each rival: where the champion is ahead, and where it is level or behind."""
    told = []
    for rival in runs.rivals:
        held = duels(runs, rival)
        pays = _lines(held, Outcome.AHEAD)
        does_not = [*_lines(held, Outcome.BEHIND), *_lines(held, Outcome.LEVEL)]
        told.append(Verdicts(rival, tally(held), tuple(pays), tuple(does_not)))
    return told


def tally(held: Sequence[Duel]) -> str:
    """`ahead of hash-drop in 14 of 25 comparisons, level in 6 and behind in 5`, and what that comes to."""
    outcomes = [one.outcome for each in held for one in each.comparisons if one.outcome is not Outcome.ABSENT]
    if not outcomes:
        return "There is nothing to compare."
    ahead, level, behind = (outcomes.count(o) for o in (Outcome.AHEAD, Outcome.LEVEL, Outcome.BEHIND))
    mine, theirs = held[0].mine, held[0].theirs
    counted = (
        f"{mine.name} is ahead of {theirs.name} in {ahead} of {len(outcomes)} comparisons, "
        f"level in {level}, behind in {behind}"
    )
    if ahead == behind:
        return f"{counted}: on balance neither is better here."
    if theirs.is_nile:
        better = mine if ahead > behind else theirs
        return f"{counted}: on balance {better.guide} is the better guide here."
    return f"{counted}: on balance the summaries {'pay' if ahead > behind else 'do not pay'} here."


def level_means(runs: Runs) -> str:
    """What the page calls level."""
    spread = ", or the ranges over the seeds overlap" if len(runs.seeds) > 1 else ""
    return f"Level: within {percent(LEVEL_WITHIN)} of each other{spread}."


# --- what was done ----------------------------------------------------------------------------------------


def _streams(runs: Runs) -> str:
    dataset, window = runs.of("dataset"), runs.of("window_s")
    data = dataset if isinstance(dataset, Mapping) else {"name": dataset}
    name = f" from {data['name']}" if data.get("name") else ""
    sides = [f"{side}: {data[side]}" for side in ("left", "right") if data.get(side)]
    which = f" ({'; '.join(sides)})" if sides else ""
    told = f"Two streams were read{name}{which}"
    key = f"have the same {data['key']}" if data.get("key") else "have the same key"
    if window is None:
        when = ", whenever they came: the join has no window"
    else:
        when = f" and lie at most {span(float(window))} apart in time"
    exact = runs.of("exact_pairs")
    count = f" and found {grouped_digits(exact)} {_plural('pair', exact)}" if exact is not None else ""
    return (
        f"{told}, and joined: a pair is one tuple of each that {key}{when}. "
        f"Apache Spark computed the exact answer{count}, with code that shares nothing with the engine it judges; "
        "every figure below is measured against that answer."
    )


def _rivals(runs: Runs) -> str:
    guides = {
        "countsketch": "by count sketches in a grid of values and times (nile/countsketch)",
        "directory": "by exact counts of every key (nile/directory)",
    }
    own = [guides.get(str(one.guide), f"by {one.guide}") for one in runs.series if one.is_nile]
    own[1:] = [f"{how}, to show what sketches cost or save" for how in own[1:]]
    told = f"Nile decides what to join first {listing(own)}. " if own else ""
    champion = runs.champion
    if champion is not None and not champion.is_nile:
        told = f"The page is about {champion.name}, {_described(champion)}. "
    named = [f"{one.name}, {_described(one)}" for one in runs.opponents]
    if not named:
        return f"{told}No opponent was run, so nothing here says whether the summaries pay."
    if len(named) == 1 and not _prefers(runs.opponents[0]):
        return f"{told}The opponent is {named[0]}; it has no preference and does the same under each."
    start = "The opponent is" if len(named) == 1 else "The opponents are"
    without = [one.name for one in runs.opponents if not _prefers(one)]
    same = f" {listing(without)} {'has' if len(without) == 1 else 'have'} no preference." if without else ""
    return f"{told}{start} {'; '.join(named)}.{same}"


def _prefers(series: Series) -> bool:
    return series.method.split("/")[0] == "paper"


def _described(series: Series) -> str:
    method, _, structure = series.method.partition("/")
    told = OPPONENTS.get(method, "a method without summaries")
    return f"{told}, over structure {structure}" if structure else told


# --- one chart --------------------------------------------------------------------------------------------


def _course(series: Series, figure: Figure, points: Sequence[Point]) -> str:
    """How the champion's own curve runs, from its first to its last budget."""
    first, last = points[0], points[-1]
    one, other = shown(first.mean, figure.unit), shown(last.mean, figure.unit)
    frame = {
        "recall": "{name} finds {one} of the exact pairs {at}",
        "mean_age_s": "The pairs of {name} have a mean age of {one} {at}",
        "hist_mse_key": "{name} lies {one} from the exact histogram of keys {at}",
        "hist_mse_age": "{name} lies {one} from the exact histogram of ages {at}",
        "outlier_precision": "Of what {name} puts out, {one} are outliers {at}",
        "outlier_precision_paper": "Of what {name} puts out, {one} are outliers by the paper's definition {at}",
        "outlier_recall": "{name} finds {one} of the outliers {at}",
        "found": "{name} finds {one} of the exact rows {at}",
        "error_median": "Half of the numbers of {name} are off by {one} or less {at}",
        "error_greatest": "The worst number of {name} is off by {one} {at}",
        "numbers_missing": "{name} misses {one} of the numbers {at}",
        "outlier_recall_paper": "{name} finds {one} of the outliers by the paper's definition {at}",
    }[figure.key]
    told = frame.format(name=series.name, one=one, at=f"at a budget of {asked(first.budget)}")
    return f"{told}, {other} at {asked(last.budget)}" if len(points) > 1 else told


def _standing(held: Duel) -> str:
    """`ahead of hash-drop at 5 % (2.4 times as many pairs) and level at 100 %`."""
    parts: list[str] = []
    words = {Outcome.AHEAD: "ahead of", Outcome.LEVEL: "level with", Outcome.BEHIND: "behind"}
    for outcome, word in words.items():
        if held.budgets(outcome):
            against = f"{outcome.value}" if parts else f"{word} {held.theirs.name}"
            parts.append(f"{against} {_where(held, outcome)}")
    return listing(parts) or f"not comparable with {held.theirs.name}"


def _where(held: Duel, outcome: Outcome) -> str:
    """The budgets where it came out so, by how much, and where one side had nothing at all."""
    among = [one.budget for one in held.comparisons]
    return f"{at_budgets(held.budgets(outcome), among)}{_by_how_much(held, outcome)}{_nothing(held, outcome)}"


def _by_how_much(held: Duel, outcome: Outcome) -> str:
    ratios = [ratio for ratio in held.ratios(outcome) if ratio]
    if outcome is Outcome.LEVEL or not ratios:
        return ""
    if held.figure.unit == "distance":
        word = "times closer"
        if outcome is Outcome.BEHIND:
            ratios, word = [1 / ratio for ratio in ratios], "times as far"
    else:
        word = f"times {MORE.get(held.figure.key, 'as much')}"
    low, high = times(min(ratios)), times(max(ratios))
    return f" ({low} {word})" if low == high else f" ({low} to {high} {word})"


def _others(runs: Runs, preference: str, figure: Figure) -> list[str]:
    """The other series at the least budget, and the exact answer, for a figure where no side is better."""
    told = []
    for one in runs.opponents:
        points = runs.curve(one, preference, figure.key).points
        if points:
            value, at = shown(points[0].mean, figure.unit), asked(points[0].budget)
            told.append(f"those of {one.name} one of {value} at {at}")
    exact = runs.of("exact_mean_age_s")
    if figure.key == "mean_age_s" and exact is not None:
        told.append(f"all exact pairs one of {duration(float(exact))}")
    return told


def _against_ideal(runs: Runs, champion: Series, preference: str, figure: Figure) -> list[str]:
    """How far from a uniform sample of as many pairs, at the budgets where both are more than zero."""
    curve, ideal = (runs.curve(champion, preference, key) for key in (figure.key, figure.ideal or ""))
    ratios = [mine.mean / best.mean for mine in curve.points if (best := ideal.at(mine.budget)) and best.mean > 0]
    if not ratios:
        return []
    low, high = times(min(ratios)), times(max(ratios))
    return [f"that is {low if low == high else f'{low} to {high}'} times the ideal of a uniform sample"]


def _why_absent(runs: Runs, preference: str, figure: Figure) -> str:
    if not runs.of("exact_pairs"):
        return "the exact join has no pairs"
    if figure.key.startswith("outlier_recall"):
        return "the exact answer has no outliers"
    return f"it put nothing out under {preference}"


# --- the verdict ------------------------------------------------------------------------------------------


def _lines(held: Sequence[Duel], outcome: Outcome) -> list[str]:
    """`Share of pairs under desc: ahead from 5 % to 20 % (1.4 to 2.4 times as many pairs).`

    Questions that came out alike share a line.
    """
    alike: dict[str, list[str]] = {}
    for one in held:
        if one.budgets(outcome):
            said = f"{outcome.value} {_where(one, outcome)}"
            alike.setdefault(said, []).append(f"{one.figure.short} under {one.preference}")
    return [f"{_raised(listing(questions))}: {said}." for said, questions in alike.items()]


def _nothing(held: Duel, outcome: Outcome) -> str:
    """A remark where the side that is behind had nothing to show: no output, or none of what was wanted."""
    if outcome is Outcome.LEVEL:
        return ""
    mine_behind = outcome is Outcome.BEHIND

    def empty(one: Comparison) -> bool:
        point = one.mine if mine_behind else one.theirs
        return one.outcome is outcome and (point is None or (held.figure.better > 0 and point.mean == 0))

    lone = [one.budget for one in held.comparisons if empty(one)]
    if not lone:
        return ""
    name = (held.mine if mine_behind else held.theirs).name
    among = [one.budget for one in held.comparisons]
    return f", {name} having nothing to show {at_budgets(lone, among)}"


def _told(runs: Runs, name: str) -> str:
    """A setting of the runs as text."""
    value = runs.of(name)
    return "not told" if value is None else str(value)


def _raised(text: str) -> str:
    return text[:1].upper() + text[1:]


def _plural(word: str, count: Any) -> str:
    return word if count == 1 else f"{word}s"
