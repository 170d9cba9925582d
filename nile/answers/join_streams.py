"""What answers of joins ask of the streams that they are over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from nile.base.durations import format_duration
from nile.expressions.conditions import Condition
from nile.operators.common.guides import AUTO, choose_guide
from nile.operators.common.plan import JoinPlan
from nile.operators.inputs.joining import Loaded
from nile.operators.inputs.pair_conditions import PairCondition
from nile.operators.join.planned import plan_told
from nile.summaries.costs import CostTable
from nile.summaries.heavy import pa

__all__ = ["Place", "Streams", "guiding", "of_several", "selected_from"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Place:
    """A stream in a join.  name: what the question calls it; key: its column joined on; where: selects its tuples;
    further: columns that are a key together with that one."""

    stream: str
    name: str
    key: str
    where: Condition | None = None
    further: tuple[str, ...] = ()

    @property
    def keyed(self) -> str:
        """Its key as the question calls it; in brackets a key of several columns."""
        key = ", ".join((self.key, *self.further))
        return f"{self.name}.({key})" if ", " in key else f"{self.name}.{key}"


def of_several(places: Sequence[Place]) -> bool:
    """Whether the key of a join is of several columns."""
    return any(place.further for place in places)


def selected_from(places: Sequence[Place], condition: PairCondition | None) -> str:
    """A join as one would begin to write it."""
    from_ = ", ".join(
        place.stream if place.stream == place.name else f"{place.stream} AS {place.name}" for place in places
    )
    first, *others = (place.keyed for place in places)
    where = [f"{first} = {other}" for other in others]
    where += [place.where.text for place in places if place.where is not None]
    where += [] if condition is None else [condition.text]
    return f"SELECT * FROM {from_} WHERE {' AND '.join(where)}"


def guiding(plan: JoinPlan, guide: str, *, streams: int, pair: bool, has_grid: bool) -> list[str]:
    """What EXPLAIN says of the guide.  guide: as it was asked for; has_grid: whether the join keeps one of its own."""
    spec, lines = plan.spec, plan_told(plan) if pair else []
    if guide == AUTO:
        lines.append(f"  {choose_guide(spec, plan.costs, plan.preference, streams=streams)}")
    if has_grid:
        what = "summary" if pair else "one summary of (key, stream),"
        lines.append(
            f"  {what} {spec.structure}: {spec.depth} granularities from {format_duration(spec.granularity)}, "
            f"rate {spec.rate}, {spec.value_buckets} value buckets, sketch {spec.rows} x {spec.width}, "
            f"zones by {spec.confidence}"
        )
    return lines


class Streams(Protocol):
    """The streams of a join, loaded, with everything their runs share."""

    @property
    def streams(self) -> tuple[Loaded, ...]:
        """In the order of the statement."""

    @property
    def key_type(self) -> pa.DataType:
        """Of the key, common to all."""

    @property
    def candidates(self) -> int:
        """How many outputs the exact answer has, a condition over several streams left aside."""

    @property
    def has_ranges(self) -> bool:
        """Whether outputs make whole ranges: there is no condition over several streams."""

    def costs(self, table: CostTable, *, ranges: bool) -> Array:
        """What the exact answer spends at each arrival."""
