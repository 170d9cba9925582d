"""Standing range selections over one stream, and aggregates on top of them, under a budget.

The paper's axis is the mean time between two arrivals, on one machine; here it scales the budget.  `capacity` is the
share of what `naive` needs for `load` queries that the machine can do when a tuple arrives every 100 ms.  A selection
looks at no other tuple, so half the time between arrivals is half the share.  Credit that is not used is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any

from pydantic import Field

from nile.answers.selection_query import SelectionQuery
from nile.experiments.atlas.kinds import Data, Kind, Metric, Options, register
from nile.experiments.figures.selections import mean_cost, point, ranges_over
from nile.experiments.run.fields import one_of
from nile.operators.inputs.selecting import Selectable
from nile.operators.selection.plan import OUTPUTS, SELECTION_METHODS
from nile.preferences.budget import Budget
from nile.pyramid.grid.spec import STRUCTURES
from nile.streams.source import open_source
from nile.streams.synthetic import SyntheticRetail
from nile.summaries.errors import SourceError
from nile.summaries.heavy import pa

__all__ = ["SELECTION", "SelectionOptions"]

_REFERENCE = 100.0  # ms between arrivals: the slowest stream of the paper's figures
_ROWS = 65_536

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class SelectionOptions(Options):
    """queries: how many stand; load: how many the capacity is a share of."""

    data: Annotated[str, one_of(("synthetic", "real"))] = Field("synthetic", description="synthetic or real")
    costs: Annotated[str, one_of(("engine", "memory"))] = Field("engine", description="engine or memory")
    tuples: Annotated[int, Field(ge=1000, le=10_000_000)] = Field(60_000, description="a whole number from 1000 on")
    queries: Annotated[int, Field(ge=1, le=10_000)] = Field(100, description="a whole number from 1 to 10000")
    load: Annotated[int, Field(ge=1, le=10_000)] = Field(100, description="a whole number from 1 to 10000")
    interarrival: Positive = Field(_REFERENCE, description="milliseconds above 0")
    capacity: Positive = Field(0.6, description="a number above 0")
    method: Annotated[str, one_of(SELECTION_METHODS)] = Field(
        "nile", description=f"one of {', '.join(SELECTION_METHODS)}"
    )
    output: Annotated[str, one_of(OUTPUTS)] = Field("pairs", description=f"one of {', '.join(OUTPUTS)}")
    structure: Annotated[str, one_of(STRUCTURES)] = Field("T3", description=f"one of {', '.join(STRUCTURES)}")
    aggregate: Annotated[str, one_of(("none", "avg", "sum"))] = Field("none", description="none, avg or sum")


class _Selections:
    """The queries and the stream, and what `naive` needs for them under a cost table, worked out once each."""

    def __init__(self, options: SelectionOptions, seed: int, data: Data | None) -> None:
        if data is None:
            rare = options.tuples // 500
            self._table = SyntheticRetail(seed=seed, tuples=options.tuples, rare=rare).table()
            self._columns = {"time": "ts", "value": "price"}
        else:
            self._table = _read(data, options.tuples)
            self._columns = {"time": data.time, "value": data.value}
        self._seed = seed
        self.asked = cache(self._asked)
        self.naive_cost = cache(self._naive_cost)

    def _asked(self, queries: int) -> tuple[SelectionQuery, Selectable]:
        query = ranges_over(self._table, self._seed, queries, **self._columns)
        return query, query.load()

    def _naive_cost(self, queries: int, costs: str) -> float:
        query, selectable = self.asked(queries)
        return mean_cost((query.using(costs=costs), selectable))


def _read(data: Data, tuples: int) -> pa.Table:
    """The first tuples of a file: its time, and its values as float64.  Raises SourceError for values that are none."""
    batches = [raw.batch for raw in open_source(data.path, name="data").batches([data.time, data.value], _ROWS)]
    table = pa.Table.from_batches(batches).slice(0, tuples)
    try:
        values = table.column(data.value).cast(pa.float64())
    except pa.ArrowException as error:
        raise SourceError(
            f"--value {data.value}: needed a column of numbers; got one that is none ({str(error).splitlines()[0]}); "
            "name another"
        ) from None
    return table.set_column(table.schema.get_field_index(data.value), data.value, values)


def _measure(given: _Selections, options: SelectionOptions, _seed: int) -> Mapping[str, float | None]:
    query, selectable = given.asked(options.queries)
    told: dict[str, Any] = {"method": options.method, "costs": options.costs}
    if options.method == "nile":
        told["output"] = options.output
    if options.method == "paper":
        told["structure"] = options.structure
    fraction = options.capacity * options.interarrival / _REFERENCE
    fraction *= given.naive_cost(options.load, options.costs) / given.naive_cost(options.queries, options.costs)
    aggregate = None if options.aggregate == "none" else options.aggregate
    y, relative, unanswered, spent = point(query.using(**told), selectable, Budget(fraction), aggregate)
    if aggregate is None:
        return {"recall": y, "budget_spent": spent}
    return {"mse": y, "relative": relative, "unanswered": unanswered, "budget_spent": spent}


def _operator(options: SelectionOptions) -> str:
    if options.method == "nile":
        return f"nile giving {options.output}"
    return f"paper over {options.structure}" if options.method == "paper" else options.method


SELECTION = register(
    Kind(
        name="selection",
        about="standing range selections over a stream, under a budget",
        options=SelectionOptions,
        metrics={
            "recall": Metric("Share of each query's tuples", "share of tuples", "of the exact tuples", "share", 1),
            "mse": Metric("Mean square error of the aggregate", "error", "mean square error", "distance", -1),
            "relative": Metric("Relative error of the aggregate", "relative error", "of the value", "distance", -1),
            "unanswered": Metric("Queries without an answer", "unanswered", "of the queries", "share", -1),
            "budget_spent": Metric("Work done", "work done", "of what naive needs", "share", 0),
        },
        prepares=("data", "tuples"),
        prepare=_Selections,
        measure=_measure,
        operator=_operator,
    )
)
