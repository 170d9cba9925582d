"""What standing selections return: each query's tuples, what has expired, aggregates, and what it cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from nile.answers.answer import SHOWN, Answer
from nile.operators.drive.clock import Clock, timed
from nile.operators.drive.metered import MeteredRun, report_of
from nile.operators.inputs.selecting import Selectable
from nile.operators.selection.data import SelectionFigures, Selections, index_costs
from nile.operators.selection.plan import SelectionPlan
from nile.operators.selection.selection import StandingSelections
from nile.operators.strategies.selected import TimedSelections, is_at_once
from nile.preferences.budget import Budget, BudgetReport
from nile.report.accuracy.reporting import Wanted
from nile.streams.accounting import Accounting
from nile.summaries.errors import ConfigError
from nile.summaries.estimate import Estimate
from nile.summaries.heavy import pa
from nile.summaries.lazy import lazy

if TYPE_CHECKING:
    from nile.operators.inputs.joining import Loaded
    from nile.report.accuracy import selections
    from nile.report.accuracy.report import AccuracyReport
else:
    selections = lazy("nile.report.accuracy.selections")

__all__ = ["AGGREGATES", "SelectionAnswer"]

Array = np.ndarray[Any, Any]


_CHUNK = 65_536


def _mean(values: Array) -> float:
    return math.fsum(values) / len(values)


_FUNCTIONS: dict[str, Callable[[Array], float]] = {
    "avg": _mean,
    "median": lambda values: float(np.median(values)),
    "sum": math.fsum,
}
AGGREGATES = tuple(sorted(_FUNCTIONS))


class SelectionAnswer(Answer):
    """The tuples that each standing selection found, in the order it found them.  Nothing runs until asked for.

    `batches()` and `to_arrow()` give all queries' outputs as they are found, `to_arrow(name)` one query's.  Columns:
    query (not of one query's), ordinal (int64, the tuple's place in the ordered stream), ts, the selected column, and
    arrivals (int64: how many tuples had arrived by then).
    An answer keeps its stream, and 28 bytes per tuple found (20 per output under a budget of time or outputs; 28 per
    record under `output="ranges"`), whose outputs are listed when they are asked for.
    `warnings`: what the user should know, such as that the exact answer would cost less than the budget.
    """

    def __init__(
        self,
        selectable: Selectable,
        plan: SelectionPlan,
        *,
        batch_rows: int = 65_536,
        speed: float = 1.0,
        clock: Clock | None = None,
    ) -> None:
        """clock: of the question, under a budget of time; speed: how many times faster than its own pace the input is
        played back under a share of a core.
        """
        self._plan = plan
        self._selectable = selectable
        self._speed = speed
        metered = plan.budget is not None and plan.budget.unit != "fraction"
        self._clock = Clock.at_rest(plan.budget) if clock is None else clock
        self._operator: StandingSelections | TimedSelections
        self._metered: MeteredRun[Selections] | TimedSelections | None = None
        if is_at_once(plan):
            self._operator = self._metered = TimedSelections(plan, selectable, self._clock)
        else:
            standing = StandingSelections(plan, selectable.input, batch_rows=batch_rows, runs=not metered)
            self._metered = MeteredRun(standing, speed=speed, clock=clock) if metered else None
            self._operator = standing
        self._running = timed(self._operator.run() if self._metered is None else self._metered.run(), self._clock)
        self._found: list[Selections] = []
        self._by_query: list[Selections] | None = None
        self._done = False

    def __repr__(self) -> str:
        rows = self._operator.figures.outputs
        state = "complete" if self._done else "not complete"
        names = len(self._selectable.names)
        return f"<SelectionAnswer {self.plan.method}, {names} selections: {rows} tuples so far, {state}>"

    @property
    def plan(self) -> SelectionPlan:
        """What was asked, checked and complete."""
        return self._plan

    def again(self, budget: float, *, method: str | None = None) -> SelectionAnswer:
        """The same selections of the stream as it was read, under a fraction of `naive`'s work."""
        plan = replace(self.plan, budget=Budget(budget), method=method or self.plan.method)
        return SelectionAnswer(self._selectable, plan, speed=self._speed)

    def measured(self, wanted: Wanted) -> AccuracyReport:
        """The body of `report`: against every tuple that satisfies a condition."""
        wanted.refuse_exact(self.plan.is_exact, self.plan.budget)
        data, plan = self._selectable, self.plan
        told = (
            f"{len(self.names)} selections of {data.loaded.name} on {data.on}, {plan.preference} first, by "
            f"{plan.method}, budget {plan.budget or 'none'}"
        )
        return selections.selection_accuracy(self, wanted, wanted.query or told)

    @property
    def ruled_out(self) -> int:
        """Tuples that a shared summary tells to satisfy nothing, known before the query runs."""
        return self._operator.ruled_out

    def truth(self) -> list[Array]:
        """The tuples that satisfy each selection, evaluated one by one: ordinals, int64."""
        return [np.flatnonzero(self._selectable.truth(q)) for q in range(len(self.names))]

    @property
    def loaded(self) -> Loaded:
        """The stream behind the answer."""
        return self._selectable.loaded

    @property
    def names(self) -> tuple[str, ...]:
        """The selections, as they were named."""
        return self._selectable.names

    def outputs(self) -> Iterator[Selections]:
        """Outputs of all queries as plain arrays, tuples or records, as they are found; each call from the start."""
        for part in self._parts():
            yield from self._operator.pairs(part)

    def _parts(self) -> Iterator[Selections]:
        """The same as they are kept."""
        at = 0
        while True:
            while at < len(self._found):
                yield self._found[at]
                at += 1
            part = next(self._running, None)
            if part is None:
                self._done = True
                return
            self._found.append(part)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Arrow record batches with the tuples of all queries, as they are found."""
        return timed(map(self._rows, self.outputs()), self._clock)

    def in_order(self) -> Iterator[pa.RecordBatch]:
        """As `batches`, by the preference: desc values of which most tuples were found first, asc fewest.

        By promise `value`, by what the tuples of a value add up to.  Of equals (under weighted all are) the earlier
        tuple.  Runs to the end; 40 bytes a tuple found.  Raises KeyTypeError where values are no numbers.
        """
        data, plan = self._selectable, self.plan
        none = np.zeros(0, np.int64)
        parts = [self._operator.expand(part) for part in self.outputs()]
        query, ordinal, at = (
            np.concatenate([none, *(getattr(part, name) for part in parts)]) for name in ("query", "ordinal", "at")
        )
        code = data.code[ordinal].astype(np.int64)
        worth = np.bincount(code, minlength=1).astype(np.float64)
        if plan.promise == "value":
            data.need_numbers("promise 'value'")
            worth *= np.nan_to_num(data.numbers[: worth.shape[0]])
        sign = {"desc": -1.0, "asc": 1.0, "weighted": 0.0}[plan.preference]
        order = np.lexsort((ordinal, sign * worth[code]))
        for begin in range(0, order.shape[0], _CHUNK):
            kept = order[begin : begin + _CHUNK]
            yield self._rows(Selections(query[kept], ordinal[kept], at[kept]))

    def _rows(self, found: Selections) -> pa.RecordBatch:
        part = self._operator.expand(found)
        query = pa.DictionaryArray.from_arrays(pa.array(part.query), pa.array(self.names, pa.string()))
        columns = {"query": query, **self._columns(part.ordinal), "arrivals": pa.array(part.at)}
        return pa.RecordBatch.from_pydict(columns, schema=self.schema)

    def _seen(self) -> tuple[pa.RecordBatch | None, bool]:
        first = next(self._operator.pairs(self._found[0])) if self._found else None
        return (None if first is None else self._rows(first).slice(0, SHOWN)), self._done

    @property
    def schema(self) -> pa.Schema:
        """The columns of `batches`."""
        data = self._selectable
        return pa.schema(
            [("query", pa.dictionary(pa.int64(), pa.string())), ("ordinal", pa.int64()), ("ts", pa.timestamp("ns")),
             (data.on, data.values.type), ("arrivals", pa.int64())]
        )  # fmt: skip

    def to_arrow(self, name: str | None = None) -> pa.Table:
        """All tuples found, or those of one query.  Raises UnknownColumn for a name that is not a selection's."""
        if name is None:
            return super().to_arrow()
        part = self._of(self._selectable.query(name))
        return pa.table({**self._columns(part.ordinal), "arrivals": pa.array(part.at)})

    def ordinals(self, name: str) -> Array:
        """The tuples one query found, by their place in the ordered stream: int64 [n]."""
        return self._of(self._selectable.query(name)).ordinal

    def expired(self, name: str) -> pa.Table:
        """What one query reported and invalidated again, because now had passed ts + window.

        In the order of time; `expired` is ts + window + 1 ns, `arrivals` when that was reported: with the
        first arrival after the window.  Empty without a window.
        """
        window = self.plan.window
        ordinal = np.sort(self._of(self._selectable.query(name)).ordinal)
        ts = self._selectable.loaded.ts
        if window is None or ts.shape[0] == 0:
            ordinal = ordinal[:0]
        else:
            # Written as a difference, so that no time overflows.
            ordinal = ordinal[ts[-1].astype(object) - window > ts[ordinal].astype(object)]
        gone = ts[ordinal] + (0 if window is None else window + 1)
        arrivals = np.searchsorted(ts, gone, side="left") + 1
        return pa.table(
            {**self._columns(ordinal), "expired": pa.array(gone).view(pa.timestamp("ns")), "arrivals": arrivals}
        )

    def valid(self, name: str) -> Array:
        """The tuples of one query's answer at the last event time (all of them without a window): ordinals."""
        ordinals = self.ordinals(name)
        return ordinals[~np.isin(ordinals, self.expired(name)["ordinal"].to_numpy())]

    def _of(self, query: int) -> Selections:
        if self._by_query is None:
            parts = list(self.outputs())
            ranges = bool(parts) and parts[0].last is not None
            columns = [[part.query for part in parts], [part.ordinal for part in parts], [part.at for part in parts]]
            if ranges:
                columns.append([part.last for part in parts if part.last is not None])
            every = [np.concatenate(column) if parts else np.zeros(0, np.int64) for column in columns]
            order = np.argsort(every[0], kind="stable")
            cuts = np.searchsorted(every[0][order], np.arange(1, len(self.names)))
            split = [np.split(array[order], cuts) for array in every]
            self._by_query = [Selections(*fields) for fields in zip(*split, strict=True)]
        return self._operator.expand(self._by_query[query])

    def _columns(self, ordinal: Array) -> dict[str, Any]:
        data = self._selectable
        return {
            "ordinal": pa.array(ordinal),
            "ts": pa.array(data.loaded.ts[ordinal]).view(pa.timestamp("ns")),
            data.on: data.values.take(pa.array(data.code[ordinal])),
        }

    @property
    def exact(self) -> dict[str, int]:
        """How many tuples of the stream satisfy each predicate."""
        return self._selectable.exact

    @property
    def shares(self) -> dict[str, float | None]:
        """Of each query's exact answer, the share found; None where that is empty.  Runs the query to its end."""
        exact = self.exact
        return {
            name: self._of(q).ordinal.shape[0] / exact[name] if exact[name] else None
            for q, name in enumerate(self.names)
        }

    def aggregate(self, function: str) -> dict[str, float | None]:
        """avg, median or sum of the selected column over each query's answer at the end; None where it is empty.

        They are what the tuples found amount to (section 4.3), with no correction for those not found: a sum
        under a budget falls short, an avg or median is close when the preference was `weighted`.
        Nulls and NaN do not count.  Raises ConfigError, KeyTypeError for a column that is no number.
        """
        return self._aggregated(function, [self.valid(name) for name in self.names])

    def exact_aggregate(self, function: str) -> dict[str, float | None]:
        """The same over all tuples that satisfy each predicate and are valid at the end."""
        data = self._selectable
        ts = data.loaded.ts
        kept = np.ones(ts.shape[0], bool)
        if self.plan.window is not None and ts.shape[0]:
            kept = ts.astype(object) >= int(ts[-1]) - self.plan.window
        return self._aggregated(function, [np.flatnonzero(kept & data.truth(q)) for q in range(len(self.names))])

    def _aggregated(self, function: str, ordinals: list[Array]) -> dict[str, float | None]:
        if not isinstance(function, str) or function not in _FUNCTIONS:
            raise ConfigError(f"aggregate: needed one of {', '.join(AGGREGATES)}; got {function!r}; name one of these")
        data = self._selectable
        data.need_numbers(function)
        told: dict[str, float | None] = {}
        for name, chosen in zip(self.names, ordinals, strict=True):
            values = data.numbers[data.code[chosen]]
            values = values[~np.isnan(values)]
            told[name] = _FUNCTIONS[function](values) if values.shape[0] else None
        return told

    def _finish(self) -> None:
        for _ in self._parts():
            pass

    @property
    def overall(self) -> Estimate:
        """How many tuples satisfy the conditions, of all queries together: what a budget is a share of counts them."""
        return Estimate.exact(float(sum(self.exact.values())))

    @property
    def budget(self) -> BudgetReport:
        """Asked and spent, in the unit asked in and as a share of what `naive` needs for everything.

        Runs the query to its end.
        """
        figures, whole = self.figures, self.figures.exact_cost or 1.0
        if self.plan.budget is None:
            told = BudgetReport(math.inf, figures.budget_spent, "fraction", figures.budget_spent)
        else:
            told = report_of(self.plan.budget, self._metered, figures)
        parts = {"summary": figures.spent_summary / whole, "tuples": (figures.spent - figures.spent_summary) / whole}
        return replace(told, cpu_seconds=self._clock.cpu / 1e9, parts=parts)

    @property
    def exact_costs(self) -> dict[str, float]:
        """What the exact answer costs by each exact method, in units of the cost table."""
        data, plan = self._selectable.input, self.plan
        windowed = plan.window is not None
        return {
            "naive": self._operator.figures.exact_cost,
            "predicate-index": float(index_costs(data, plan.costs, windowed=windowed).sum()),
        }

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the user should know: conditions that nothing can satisfy, a budget that buys the exact answer, and time
        that was over before anything was looked at.
        """
        data = self._selectable
        told = [
            f"selections over stream '{data.loaded.name}', '{name}': needed a condition that some value of '{data.on}' "
            "can satisfy; got one that contradicts itself; check its bounds"
            for name in data.impossible
        ]
        late = self._metered.warnings if isinstance(self._metered, MeteredRun) else ()
        return (*told, *late, *([self.cost_warning] if self.cost_warning else []))

    @property
    def cost_warning(self) -> str | None:
        """That the budget buys the plain exact answer and more, with both costs, where it does."""
        plan = self.plan
        if (
            plan.budget is None
            or plan.budget.fraction is None
            or (plan.method in ("nile", "predicate-index") and plan.is_exact)
        ):
            return None
        exact = self.exact_costs
        granted = plan.fraction * exact["naive"]
        method = min(exact, key=lambda name: exact[name])
        if granted < exact[method] or plan.method == method:
            return None
        return (
            f"selections over stream '{self._selectable.loaded.name}': the budget grants {granted:,.0f} units of the "
            f"{plan.costs.name} table ({plan.fraction:g} of naive), the exact answer by {method} costs "
            f"{exact[method]:,.0f}; run without a budget, or with method='{method}'"
        )

    @property
    def accounting(self) -> Accounting:
        """in = applied + late + shed + rejected; shed: tuples that could not be taken in, or were fed to no query."""
        told = self._selectable.loaded.accounting + Accounting()
        told.shed_applied(self.figures.shed)
        told.check()
        return told

    @property
    def accounts(self) -> tuple[Accounting, ...]:
        """Of the one stream."""
        return (self.accounting,)

    @property
    def memory_bytes(self) -> int:
        """Bytes of the summary and of what queries remember."""
        return self._operator.memory_bytes

    @property
    def figures(self) -> SelectionFigures:
        """Counts and costs of the run.  Runs the query to its end."""
        self._finish()
        return self._operator.figures
