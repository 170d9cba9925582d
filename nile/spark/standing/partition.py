"""One part of a standing query on Spark: a live database without a store, whose state is bytes between micro-batches.

state -> streams and query as they were -> the rows of a micro-batch, in order -> outputs, state
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from nile.base.durations import parse_duration
from nile.base.times import event_times
from nile.execution.envelopes import content, flat
from nile.execution.live.approximate.join import ApproximateSubscription
from nile.execution.live.live import Live
from nile.execution.live.subscription import Subscription
from nile.execution.options import Options
from nile.execution.registry import Registry
from nile.execution.statement.builder import read_query
from nile.preferences.budget import Budget
from nile.spark.standing.dealing import Counts, Promises
from nile.spark.standing.levels import Levels, matches_of, shares_of, span_of
from nile.streams.accounting import Accounting
from nile.summaries.envelope import Envelope, pack, unpack
from nile.summaries.estimate import Estimate
from nile.summaries.hashing import PUBLIC
from nile.summaries.heavy import pa, pc
from nile.summaries.schemas import schema_from_json, schema_to_json

__all__ = ["SHORTEST", "Asked", "Fed", "Partition", "Told", "Worth", "told_of"]

Told = Counts | Levels
"""What tasks that deal tuples out counted of them."""
_KIND = "part of a standing query"
SHORTEST = "1 ns"
"""What streams of a part keep for later queries: there are none."""


@dataclass(frozen=True, slots=True)
class Fed:
    """A stream of the query.  lateness, where: as of a live stream; key: the column whose values say to which part."""

    name: str
    schema: pa.Schema
    time: str
    lateness: Any
    key: str
    where: str | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """A standing query, and how many parts it has."""

    text: str
    options: Mapping[str, Any]
    streams: tuple[Fed, ...]
    parts: int

    def as_json(self) -> str:
        """What tasks are handed."""
        options = {
            name: {"budget": [value.unit, value.amount]} if isinstance(value, Budget) else value
            for name, value in self.options.items()
        }
        streams = [
            {"name": each.name, "schema": schema_to_json(each.schema), "time": each.time, "lateness": each.lateness,
             "key": each.key, "where": each.where}
            for each in self.streams
        ]  # fmt: skip
        return json.dumps({"text": self.text, "options": options, "streams": streams, "parts": self.parts})

    @classmethod
    def from_json(cls, text: str) -> Asked:
        """What `as_json` gave."""
        found = json.loads(text)
        options = {
            name: Budget(**{value["budget"][0]: value["budget"][1]}) if isinstance(value, dict) else value
            for name, value in found["options"].items()
        }
        streams = tuple(
            Fed(each["name"], schema_from_json(each["schema"], each["name"]), each["time"], each["lateness"],
                each["key"], each["where"])
            for each in found["streams"]
        )  # fmt: skip
        return cls(found["text"], options, streams, found["parts"])


@dataclass(frozen=True, slots=True)
class Worth:
    """What a standing query on Spark is worth so far, all parts together.

    outputs: rows told; estimate: how many the exact answer has; spent, exact_cost: in units of the cost table, 0.0 of
    an exact query; accounting: in = applied + late + shed + rejected of each stream; state: bytes.
    """

    outputs: int
    estimate: Estimate
    spent: float
    exact_cost: float
    state: int
    accounting: Mapping[str, Accounting] = field(default_factory=dict)

    @property
    def fraction(self) -> float:
        """What was spent, as a share of the exact answer's cost."""
        return self.spent / self.exact_cost if self.exact_cost else 1.0

    def as_json(self) -> str:
        """For `of_json`."""
        low, high = (None if math.isinf(each) else float(each) for each in (self.estimate.low, self.estimate.high))
        return json.dumps(
            {
                "outputs": self.outputs,
                "estimate": [float(self.estimate.value), low, high, self.estimate.confidence, self.estimate.certified],
                "cost": [self.spent, self.exact_cost],
                "state": self.state,
                "accounting": {name: each.as_dict() for name, each in self.accounting.items()},
            }
        )

    @classmethod
    def of_json(cls, text: str) -> Worth:
        """What `as_json` gave."""
        found = json.loads(text)
        value, low, high, confidence, certified = found["estimate"]
        estimate = Estimate(
            value, -math.inf if low is None else low, math.inf if high is None else high, confidence, certified
        )
        accounting = {name: Accounting(**each) for name, each in found["accounting"].items()}
        spent, exact_cost = found["cost"]
        return cls(found["outputs"], estimate, spent, exact_cost, found["state"], accounting)

    @classmethod
    def of_all(cls, parts: Sequence[Worth]) -> Worth:
        """The parts together: independent samples, so errors add as squares; what is certain adds as it is."""
        value = sum(float(each.estimate.value) for each in parts)
        sure = all(each.estimate.confidence == 1.0 for each in parts)
        below, above = (
            np.array([float(each.estimate.value) - float(each.estimate.low) for each in parts]),
            np.array([float(each.estimate.high) - float(each.estimate.value) for each in parts]),
        )
        low, high = ((each.sum() if sure else math.sqrt((each**2).sum())) if each.size else 0.0
                     for each in (below, above))  # fmt: skip
        confidence = min((each.estimate.confidence for each in parts), default=1.0)
        certified = all(each.estimate.certified for each in parts)
        estimate = Estimate(value, value - float(low), value + float(high), confidence, certified)
        accounting: dict[str, Accounting] = {}
        for part in parts:
            for name, each in part.accounting.items():
                accounting[name] = accounting.get(name, Accounting()) + each
        return cls(
            sum(each.outputs for each in parts), estimate, sum(each.spent for each in parts),
            sum(each.exact_cost for each in parts), sum(each.state for each in parts), accounting,
        )  # fmt: skip


class Partition:
    """A part at work: streams of its tuples, and the query over them.

    state: what `capture` gave; None: nothing has come.  number: which part it is.  Cost: that of a live database, and
    reading and writing the state, the tuples of up to two windows.  Raises EnvelopeError, and what `Database.subscribe`
    raises.
    """

    def __init__(self, asked: Asked, state: bytes | None = None, number: int = 0) -> None:
        names = Registry(PUBLIC, None)
        self._live = Live(names)
        self._fed = {each.name: each for each in asked.streams}
        for each in asked.streams:
            self._live.create(
                each.name, each.schema, each.time, lateness=each.lateness, where=each.where, keep=SHORTEST
            )
        self._lateness = {
            each.name: parse_duration(each.lateness or 0, where=f"stream '{each.name}'", least=0)
            for each in asked.streams
        }
        held = None if state is None else unpack(state, where="state of a part of a standing query")
        if held is not None:
            for at, stream in enumerate(self._live.streams().values()):
                stream.go_on_from(_part(held, f"stream{at}"))
        query = read_query(asked.text, names, None)
        before = None if held is None else content(_part(held, "query"))
        self.standing: Subscription = self._live.subscribe(query, Options.of(dict(asked.options)), None, state=before)
        self._number = number
        self._several = asked.parts > 1
        self._promises = _promises(self.standing, asked)
        if self._promises is not None and held is not None:
            told = _part(held, "promises")
            self._promises.go_on_from(told.params, told.arrays)

    @property
    def is_dealt(self) -> bool:
        """Whether its budget is dealt out among the parts by what tasks count."""
        return self._promises is not None or self.salt is not None

    @property
    def salt(self) -> int | None:
        """What tells the level of each key, of a sample whose parts share a budget by it; None: of another query."""
        shares = self._several and isinstance(self.standing, ApproximateSubscription)
        return self.standing.salt if shares else None  # type: ignore[attr-defined]

    @property
    def schema(self) -> pa.Schema:
        """Of what `take` gives."""
        return self.standing.schema

    def take(
        self, rows: Mapping[str, pa.Table], reached: Mapping[str, int], counts: Sequence[tuple[int, Told]] = ()
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a micro-batch by stream; yields what they lead to.

        reached: the latest time in it (ns) of each stream that has any, whichever part got that tuple.  So which tuples
        are late, and which outputs are told by now, does not depend on how many parts there are.
        counts: what the tasks that dealt out the micro-batch counted of each stream, by its number.

        Rows go by time, and at one time by their other columns, so that the order in which Spark reads them, which it
        may read again, does not matter.
        """
        if self._promises is not None:
            assert isinstance(self.standing, ApproximateSubscription)
            self._promises.tell([(stream, each) for stream, each in counts if isinstance(each, Counts)])
            shares = self._promises.shares(self.standing.plan.fraction)
            self.standing.deal(float(shares[self._number]))
        elif levels := [(stream, each) for stream, each in counts if isinstance(each, Levels)]:
            assert isinstance(self.standing, ApproximateSubscription)
            plan = self.standing.plan
            met = matches_of(levels, plan.window)
            (_, at_first), _ = matches_of(levels, min(plan.window, span_of(levels) // 2))  # none is there yet to meet
            self.standing.deal_sample(at_first, partial(shares_of, levels, met, plan.costs))
        for name, table in rows.items():
            if table.num_rows:
                self._live.push(name, in_order(table, self._fed[name].time))
        for name, latest in reached.items():
            self._live.advance(np.datetime64(latest - self._lateness[name], "ns"), name)
        yield from self.standing.poll()

    def capture(self) -> bytes:
        """All that the part holds: the same rows give the same bytes."""
        parts = {f"stream{at}": stream.content() for at, stream in enumerate(self._live.streams().values())}
        parts["query"] = flat(self.standing.capture())
        if self._promises is not None:
            parts["promises"] = self._promises.content()
        params = {name: part for name, (part, _) in parts.items()}
        arrays = {f"{name}|{key}": each for name, (_, group) in parts.items() for key, each in group.items()}
        return pack(_KIND, params, arrays)

    def worth(self, state: int) -> Worth:
        """What it is worth; state: bytes that it is kept in."""
        figures = getattr(self.standing, "figures", None)
        exact = 0.0 if figures is None else float(figures.exact_cost)
        spent = 0.0 if figures is None else float(figures.budget_spent) * exact
        by_stream: dict[str, Accounting] = {}
        for name, stream in self._live.streams().items():
            by_stream[name] = stream.accounting
        return Worth(self.standing.outputs, self.standing.estimate, spent, exact, state, by_stream)


def _promises(standing: Subscription, asked: Asked) -> Promises | None:
    """What deals out the budget of a join of two streams that looks for most matches; None: each part has its own."""
    if asked.parts == 1 or len(asked.streams) != 2 or not isinstance(standing, ApproximateSubscription):
        return None
    plan = standing.plan
    if plan.preference != "desc" or plan.fraction >= 1.0 or plan.window is None:
        return None
    return Promises(asked.parts, plan.window, plan.costs)


def told_of(batch: pa.RecordBatch) -> Told:
    """What a task counted, from what its `batch` gave."""
    return Counts.from_batch(batch) if "hashes" in batch.schema.names else Levels.from_batch(batch)


def in_order(rows: pa.Table, time: str) -> pa.Table:
    """Rows by time, then by their other columns that have an order."""
    ts = pa.chunked_array([pa.array(event_times(chunk).ns) for chunk in rows.column(time).chunks])
    keyed = rows.append_column("\0ts", ts)
    others = [field.name for field in rows.schema if field.name != time and not pa.types.is_nested(field.type)]
    keys = [(name, "ascending") for name in ["\0ts", *others]]
    return rows.take(pc.sort_indices(keyed, sort_keys=keys))


def _part(held: Envelope, name: str) -> Envelope:
    params = held.params.get(name)
    if not isinstance(params, Mapping):
        held.refuse(f"the part '{name}'", "none")
    arrays = {key.partition("|")[2]: each for key, each in held.arrays.items() if key.startswith(f"{name}|")}
    return Envelope(name, params, arrays, held.where)
