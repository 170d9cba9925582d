"""What an arrival costs in CPU time under `method="nile"`, beside the opponent that drops and the exact probe.

The cost clock does not see it: refusing a tuple is free there, and bookkeeping between operations too.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

from nile.experiments.benchmarks.harness import Contestant, Result, benchmark, race
from nile.experiments.benchmarks.streams import workload
from nile.operators.common.plan import GUIDES, JoinPlan, default_spec
from nile.operators.join.join import JoinInput, PromisingJoin
from nile.preferences.budget import Budget
from nile.preferences.preference import PREFERENCES

__all__ = ["promising_join"]

TITLE = "CPU time an arrival of method nile, beside hash-drop and the exact probe"
SELECTIVITY = 0.005
BELOW_ONE = 1.0 - 1e-9  # everything can be paid, and is still asked for region by region
BUDGETS = {"1-": BELOW_ONE, "0.1": 0.1, "0.01": 0.01}
PROBE = "exact probe, budget 1"
OPPONENT = "hash-drop"


@benchmark("promise", TITLE)
def promising_join() -> Result:
    """Every preference and guide at budgets just below 1, of 0.1 and of 0.01; outputs are collected, not kept."""
    streams = workload(SELECTIVITY, 0)
    window = streams.window

    def joining(data: JoinInput, method: str, preference: str, guide: str, budget: float) -> Callable[[], None]:
        spec = default_spec(window, ranking=preference != "asc")
        plan = JoinPlan(
            window=window, budget=Budget(budget), method=method, preference=preference, guide=guide, spec=spec
        )

        def run() -> None:
            for _ in PromisingJoin(plan, data).run():
                pass

        return run

    data = streams.joined.input(JoinPlan(window=window, budget=Budget(1.0)).costs, ranges=False)
    contestants = [Contestant(PROBE, joining(data, "nile", "desc", "directory", 1.0))]
    rivals: dict[str, str] = {}
    for name, budget in BUDGETS.items():
        dropping = _name(OPPONENT, name)
        contestants.append(Contestant(dropping, joining(data, OPPONENT, "desc", "directory", budget)))
        for preference in PREFERENCES:
            for guide in GUIDES:
                own = _name(f"nile {preference}, {guide}", name)
                contestants.append(Contestant(own, joining(data, "nile", preference, guide, budget)))
                rivals[own] = dropping
    result = race(
        "promise",
        TITLE,
        contestants,
        work=data.order.shape[0],
        unit="arrivals",
        notes=(
            f"two streams, selectivity {SELECTIVITY:g}, costs of the engine table; ratios say how many times as fast "
            "as each other contestant the exact probe was",
            f"{OPPONENT} under the same budget, below, tells what asking for promises costs beyond hashing",
        ),
    )
    seconds = {timing.contestant: timing.seconds for timing in result.timings}
    for own, dropping in rivals.items():
        times = median(a / b for a, b in zip(seconds[own], seconds[dropping], strict=True))
        result.figures[own] = f"{times:.2f} times the CPU time of {OPPONENT}"
    return result


def _name(who: str, budget: str) -> str:
    return f"{who}, budget {budget}"
