"""What a budget was an amount of, how it was paced and how work was priced, in plain words."""

from __future__ import annotations

from collections.abc import Mapping

from nile.report.runs import Runs
from nile.report.wording import duration, grouped_digits, percent, times

__all__ = ["UNITS", "budget_story", "pacing_of"]

PACING = {
    "none": "none, unspent budget is kept",
    "exponential": "exponential gaps, idle budget expires",
    "data": "the data's own times, idle budget expires",
}

UNITS = {
    "fraction": "share of what the exact join costs",
    "share": "share of one core",
    "seconds_per_tuple": "CPU time a tuple",
    "seconds": "CPU time in all",
    "deadline": "time by the clock",
    "outputs": "outputs",
}
"""What a budget is an amount of."""

COSTS = {
    "engine": "prices each operation with a whole engine around it",
    "memory": "prices the bare operations, in cache-hot nanoseconds",
}


def pacing_of(runs: Runs) -> str:
    """The pacing in a few words, bursts included."""
    replay = str(runs.of("replay") or "not told")
    told = PACING.get(replay, replay)
    return f"{told}, in bursts ({_bursts(runs)})" if replay == "exponential" and runs.of("bursts") else told


def budget_story(runs: Runs) -> str:
    """The paragraph on the budget."""
    costs, replay = str(runs.of("costs") or "not told"), str(runs.of("replay") or "not told")
    mean = runs.of("replay_mean_s")
    gaps = f" with a mean of {duration(float(mean))}" if mean is not None else ""
    if runs.of("bursts"):
        gaps += f", in bursts: {_bursts(runs)}, and the other gaps so much longer that the mean is kept"
    pacing = {
        "none": "The input is not paced: credit that is not spent is kept, and none is granted after the end",
        "exponential": f"Arrivals are re-timed with exponential gaps{gaps}; credit comes with time and expires "
        "unused when nothing is left to do",
        "data": "Credit comes with the data's own times and expires unused when nothing is left to do",
    }.get(replay, f"Pacing: {replay}")
    priced = f"priced by the cost table {costs}{f', which {COSTS[costs]}' if costs in COSTS else ''}"
    same = "so the same seed gives the same answer on every machine"
    if runs.unit == "fraction":
        example = percent(next((budget for budget in runs.budgets if budget < 1), 0.1))
        return (
            f"A budget of {example} grants each method {example} of what the exact join would have been charged so "
            "far: inserting and looking up every tuple, and emitting every pair. Summaries are charged like "
            f"everything else. {pacing}. Work is counted in operations and {priced}, {same}."
        )
    spread = "Budgets are spread evenly over the arrivals, and what is not used is kept for later ones"
    if runs.unit == "outputs":
        return (
            f"A budget is the number of outputs at most wanted. {spread}. {pacing}. Between arrivals the operator is "
            f"given as much work, {priced}, as outputs have cost so far, {same}."
        )
    if runs.unit == "share":
        speed = runs.of("speed")
        faster = f", {speed:g} times as fast as its own pace," if speed not in (None, 1) else ""
        spread = f"The input is played back in time{faster} and each method has that share of one core meanwhile"
    what = f"a {UNITS['share']}" if runs.unit == "share" else UNITS[runs.unit]
    return (
        f"A budget is {what}, by the clock of the machine that made this report. {spread}. Kernels cannot "
        "look at a clock, so they run in short quanta, each with as much credit as the CPU time that is left has "
        "bought so far; everything that the operator does counts. Such a run is not reproducible: another run, even "
        f"with the same seed, finds other pairs. Costs in units are {priced}."
    )


def _bursts(runs: Runs) -> str:
    """`50 % of the tuples come 10 times as fast, 1,000 in a row`."""
    told = runs.of("bursts")
    if not isinstance(told, Mapping):
        return str(told)
    share, factor, tuples = (float(told.get(name) or 0.0) for name in ("share", "factor", "tuples"))
    return f"{percent(share)} of the tuples come {times(factor)} times as fast, {grouped_digits(tuples)} in a row"
