"""What a report is asked to measure, checked before anything runs."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from nile.base.names import names_given
from nile.report.accuracy.reporting import Step, Wanted
from nile.summaries.errors import BudgetError, ConfigError

__all__ = ["BUDGETS", "ENGINES", "EXACT", "LOOKED_AT", "SEEDS", "Asked"]

BUDGETS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""The sweep of a report that names none, as fractions of the exact work."""

LOOKED_AT = 0.1
"""The budget looked at closely, or the nearest of the sweep, of a query that names none."""

SEEDS = 5
ENGINES = ("local", "spark")
EXACT = "exact"
_MOST_SEEDS = 1000


@dataclass(frozen=True, slots=True)
class Asked:
    """budgets: fractions, least first; seeds: how many; against: opponents; engine: what computes the exact answer."""

    budgets: tuple[float, ...]
    seeds: int
    against: tuple[str, ...]
    engine: str

    @classmethod
    def of(cls, wanted: Wanted, *, opponents: Sequence[str], usual: Sequence[str], engines: Sequence[str]) -> Asked:
        """Checked.  opponents: those that the query's operator has; usual: of them, what is taken when none is named
        beside `exact`; engines: what can compute the exact answer.

        Raises BudgetError, ConfigError.
        """
        budgets, seeds, against, engine = wanted.budgets, wanted.seeds, wanted.against, wanted.engine
        named = names_given(against, where="against")
        rivals = tuple(dict.fromkeys(name for name in named if name != EXACT))
        for name in rivals:
            if name not in opponents:
                known = (EXACT, *opponents)
                close = difflib.get_close_matches(str(name), known, n=1)
                hint = f"did you mean {close[0]!r}?" if close else "name one of these"
                raise ConfigError(f"report against: needed one of {', '.join(known)}; got {name!r}; {hint}")
        if engine is not None and engine not in engines:
            raise ConfigError(f"report engine: needed one of {', '.join(engines)}; got {engine!r}; local needs no Java")
        count = SEEDS if seeds is None else seeds
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= _MOST_SEEDS:
            raise ConfigError(
                f"report seeds: needed a whole number, 1 to {_MOST_SEEDS}; got {seeds!r}; {SEEDS} is the default"
            )
        given = BUDGETS if budgets is None else tuple(budgets) if isinstance(budgets, Iterable) else (budgets,)
        for one in given:
            if isinstance(one, bool) or not isinstance(one, int | float) or not 0.0 < one < math.inf:
                raise BudgetError(
                    f"report budgets: needed fractions of the exact work above 0; got {one!r}; 0.05 is a twentieth"
                )
        if not given:
            raise BudgetError("report budgets: needed one fraction or more; got none; leave it out for the usual ones")
        return cls(tuple(sorted({float(one) for one in given})), count, rivals or tuple(usual), engine or "local")

    def with_budget(self, fraction: float) -> Asked:
        """The same with one more budget."""
        return Asked(tuple(sorted({*self.budgets, fraction})), self.seeds, self.against, self.engine)

    def sweep(
        self,
        method: str,
        first: int,
        step: Step,
        run: Callable[[str, float, int], dict[str, Any]],
        *,
        seeded: Container[str],
    ) -> list[dict[str, Any]]:
        """What `run` records of every method, budget and seed, told step by step.

        method: the query's own, before its opponents; first: the first seed; seeded: methods whose answers depend on
        the seed, each of the others running once a budget, recorded under every seed.
        """
        methods = (method, *self.against)
        total = len(self.budgets) * sum(self.seeds if name in seeded else 1 for name in methods)
        records: list[dict[str, Any]] = []
        done = 0
        for name in methods:
            for budget in self.budgets:
                record: dict[str, Any] | None = None
                for seed in range(first, first + self.seeds):
                    if record is None or name in seeded:
                        record = run(name, budget, seed)
                        done += 1
                        step(done, total, f"{name} at {budget:g}" + (f", seed {seed}" if name in seeded else ""))
                    records.append({**record, "seed": seed})
        return records

    @property
    def looked_at(self) -> float:
        """The budget of the sweep nearest to LOOKED_AT."""
        return min(self.budgets, key=lambda one: (abs(math.log(one / LOOKED_AT)), one))
