"""Standing aggregates within a BUDGET: the exact plan over a sample of the input, with totals scaled up.

Design.  The budget's share of the tuples goes into the plan that the exact query runs on, and no other tuple is looked
at: so everything costs that share of the exact work, and windows, groups, HAVING, checkpoints and restarts are those of
exact queries.  Above the groups counts and sums are divided by the share (of a join: by that of every stream).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from nile.exact.pipeline.pipeline import Changes
from nile.exact.pipeline.tail import Passed
from nile.exact.state.held import MOST, Held, State
from nile.execution.approximate.run import approximate
from nile.execution.choice import choose
from nile.execution.live.commits import Commits
from nile.execution.live.exact_subscription import ExactSubscription
from nile.execution.options import Options
from nile.execution.reading import named_leaf
from nile.execution.values import column_of
from nile.expressions.tree import Arithmetic, Call, Column, Constant, Node, columns_of
from nile.operators.aggregate.standing_sample import SliceSample, Totalled, worth
from nile.preferences.budget import Budget, BudgetReport
from nile.sql.columns import AggregateItem, Field, Item
from nile.sql.plan import Group, Plan, Project, Query, Relation, Stream, leaves_of, map_inputs, walk
from nile.streams.accounting import Accounting
from nile.streams.live import LiveStream
from nile.streams.manager import TupleBatch
from nile.summaries.errors import BudgetError, ConfigError, NotYet
from nile.summaries.estimate import Estimate
from nile.summaries.hashing import hash_keys
from nile.summaries.heavy import pa

__all__ = ["SampledSubscription", "is_aggregate"]

Array = np.ndarray[Any, Any]
_HIDDEN = ("_nile_count", "_nile_mean", "_nile_spread")
"""What is kept beside a sum or an average alone, for its interval."""
_EXTRA = ("count", "avg", "var_pop")
_WHY = "the size of a sample has to be known before its tuples come"


def is_aggregate(query: Query) -> bool:
    """Whether a query groups or totals."""
    return any(isinstance(each, Group) for each in walk(query.plan))


class SampledSubscription(ExactSubscription):
    """A standing query of aggregates within a fraction.  Made by `Database.subscribe`; it sees later pushes.

    It emits what the exact query emits over a sample of the streams, counts and sums scaled up: signed changes, or the
    rows of a snapshot.  The sample is drawn by ordinals (`nile.operators.aggregate.standing_sample`); where different
    values are counted, by value.  `estimate`: of a count, sum or average alone and without groups, what it is as of the
    last change (emit='snapshot': now), with its interval; of others nothing is claimed, nor beside a relation that
    changes.  `budget`: the share of tuples that went in.
    Unbiased over seeds: counts, sums and counts of different values, joins included.

    >>> import nile, pyarrow as pa
    >>> with nile.connect() as db:
    ...     db.stream("clicks", pa.schema([("at", pa.float64()), ("page", pa.string())]), time="at")
    ...     many = db.subscribe("SELECT count(*) AS n FROM clicks BUDGET 25 %")
    ...     _ = db.push("clicks", {"at": [float(k) for k in range(1024)], "page": ["shop"] * 1024})
    ...     db.advance(2000.0)
    ...     print(many.budget.spent, round(many.estimate.value))
    0.25 1024
    """

    def __init__(
        self,
        names: Any,
        query: Query,
        options: Options,
        live: dict[str, LiveStream],
        commits: Commits,
        callback: Callable[[pa.RecordBatch], None] | None,
        state: Mapping[str, Any] | None = None,
    ) -> None:
        """state: what `capture` gave of another one of the same query; this one goes on where that one was.

        Raises NotYet for what has no standing operator, ConfigError, BudgetError, EnvelopeError.
        """
        prepared = approximate(names, query, replace(options, emit=None), standing=True)  # refuses what none answers
        for rows in prepared.stored:
            rows.check()  # a tuple has one output at most, or its interval would be too narrow
        self._budget = _checked(query, options)
        (group,) = (each for each in walk(query.plan) if isinstance(each, Group) and _has_stream(each))
        leaves = [leaf for leaf in leaves_of(query.plan) if isinstance(leaf, Stream) and leaf.name in live]
        stored = [leaf for leaf in leaves_of(query.plan) if isinstance(leaf, Relation)]
        if len(leaves) + len(stored) < len(leaves_of(query.plan)):
            raise NotYet(
                "standing aggregates: needed live streams, which are sampled, and relations; got others as well; join "
                "them with what you poll, or leave the budget out"
            )
        self._distinct = _distinct_of(group, leaves)
        self._confidence = 0.95 if options.confidence is None else options.confidence
        self._hasher = names.hasher
        seed = 0 if options.seed is None else options.seed
        share = min(1.0, self._budget.amount)
        self._samples = {leaf.name: SliceSample(share, seed + 1_000_003 * leaf.position) for leaf in leaves}
        if len(self._samples) < len(leaves):
            raise NotYet(
                "aggregates of a standing join: needed different streams, each sampled for itself; got one of them "
                "twice, whose tuples would be sampled together; push it under two names"
            )
        self._came = dict.fromkeys(self._samples, 0)
        self._took = dict.fromkeys(self._samples, 0)
        # Rows of a relation that come and go are no draw: nothing is claimed.
        self._alone_is = None if any(leaf.changes for leaf in stored) else _alone(group, len(leaves))
        self._last: tuple[float, ...] = (0.0, math.nan, math.nan)
        plan = _scaled(query.plan, share ** len(leaves), self._alone_is)
        sampled = replace(query, plan=plan, budget=None, preference=None, error=None)
        asked = Options(emit=options.emit or (None if query.windowed or query.emit is not None else "changes"))
        super().__init__(names, sampled, choose(sampled, asked), live, commits, callback, state)

    def __repr__(self) -> str:
        return super().__repr__().replace("<nile.Subscription", f"<nile.SampledSubscription, {self._budget},", 1)

    @property
    def shape(self) -> object:
        """Shared with none: samples differ by when they began."""
        return self

    def takes_nothing_back(self) -> str | None:
        return "aggregates of a sample, which does not record whether a tuple was in it"

    @property
    def accounting(self) -> dict[str, Accounting]:
        """Of each live stream: in = applied + late + shed + rejected; shed: tuples that no sample took."""
        with self._lock:
            told = {}
            for name, stream in self._streams.items():
                told[name] = stream.accounting + Accounting()
                if name in self._samples:
                    told[name].shed_applied(self._came[name] - self._took[name])
                told[name].check()
            return told

    @property
    def budget(self) -> BudgetReport:
        """Asked and spent: the share of the tuples so far that went into the plan."""
        with self._lock:
            came = sum(self._came.values())
            spent = sum(self._took.values()) / came if came else 0.0
            return BudgetReport(self._budget.amount, spent, "fraction", spent)

    @property
    def estimate(self) -> Estimate:
        with self._lock:
            if self._alone_is is None:
                return Estimate.guess(math.nan)
            if self.choice.emit == "snapshot":  # of which no change is told
                self.settle()
                for batch in self._plan.pipeline.snapshot().to_batches():
                    if batch.num_rows:
                        self._note(batch, batch.num_rows - 1)
            share = next(iter(self._samples.values())).share
            count, mean, spread = self._last
            return worth(self._alone_is.function, share, Totalled(int(count), mean, spread), self._confidence)

    def _arrived(self, name: str, batch: TupleBatch) -> None:
        if name not in self._samples:  # a relation's changes
            super()._arrived(name, batch)
            return
        taken = self._taken(name, batch)
        self._came[name] += len(batch)
        self._took[name] += int(taken.sum())
        if taken.all():
            super()._arrived(name, batch)
            return
        assert batch.carried is not None
        mask = pa.array(taken)
        super()._arrived(
            name, TupleBatch(batch.ordinal, batch.ts[taken], batch.key.filter(mask), batch.carried.filter(mask))
        )

    def _taken(self, name: str, batch: TupleBatch) -> Array:
        sample = self._samples[name]
        if self._distinct is None:
            return sample.taken(self._came[name], len(batch))
        leaf, node = self._distinct
        assert batch.carried is not None
        names = [field.name.removeprefix(f"{leaf.alias}.") for field in leaf.fields]
        values = column_of(node, named_leaf(leaf, batch.carried.select(names)))
        return sample.having(hash_keys(values, self._hasher, where=f"stream '{name}', DISTINCT"))

    def _formed(self, found: Sequence[Changes], selected: bool = False) -> tuple[Passed, list[pa.RecordBatch]]:
        if self._alone_is is not None:
            for each in found:
                come = np.flatnonzero(each.sign > 0)
                if come.shape[0]:
                    self._note(each.rows, int(come[-1]))
        return super()._formed(found, selected)

    def _note(self, rows: pa.RecordBatch, at: int) -> None:
        """The one row of a query without groups, as it is now."""
        told = []
        for name in _HIDDEN:
            place = rows.schema.get_field_index(name)
            value = None if place < 0 else rows.column(place)[at].as_py()
            told.append(math.nan if value is None else float(value))
        if math.isnan(told[0]):
            told[0] = float(rows.column(0)[at].as_py())
        self._last = (told[0], told[1], told[2])

    def capture(self) -> State:
        with self._lock:
            sample = {"came": self._came, "took": self._took, "last": np.array(self._last)}
            return {**super().capture(), "sample": sample}

    def _go_on_from(self, held: Held) -> None:
        """Raises EnvelopeError for a state that is not of this query."""
        part = held.part("sample")
        came, took = part.part("came"), part.part("took")
        self._came = {name: came.integer(name, 0, MOST) for name in self._samples}
        self._took = {name: took.integer(name, 0, self._came[name]) for name in self._samples}
        count, mean, spread = part.array("last", "float64", (3,)).tolist()
        if not 0.0 <= count <= MOST:
            part.refuse("a count of tuples", count)
        self._last = (count, mean, spread)
        for each in (came, took, part):
            each.end()
        super()._go_on_from(held)


def _checked(query: Query, options: Options) -> Budget:
    """The budget.  Raises NotYet, BudgetError, ConfigError for what a standing sample does not take."""
    if query.error is not None:
        raise NotYet(f"standing aggregates: needed a BUDGET as a fraction; got ERROR, and {_WHY}; say BUDGET 10 %")
    budget = options.budget if isinstance(options.budget, Budget) else None
    if budget is None and query.budget is not None:
        budget = Budget.of(*query.budget)
    if budget is None:
        raise BudgetError(
            "standing aggregates WITH PREFERENCE: needed a BUDGET, the share of the tuples that are looked at; got "
            "none; say BUDGET 10 %, or leave the preference out"
        )
    if budget.unit != "fraction":
        raise BudgetError(
            f"standing aggregates: needed a BUDGET as a fraction; got {budget}, and {_WHY}; say BUDGET 10 %"
        )
    if query.preference is not None and query.preference.kind != "weighted":
        raise NotYet(
            "standing aggregates: needed WITH PREFERENCE weighted, a random sample; got "
            f"{query.preference.kind}, whose outputs are not one; say weighted, or join and aggregate what you poll"
        )
    for name, _ in options.said():
        if name not in ("seed", "confidence", "emit"):
            raise ConfigError(f"{name}: needed seed, confidence or emit, for standing aggregates; leave it out")
    return budget


def _distinct_of(group: Group, leaves: list[Stream]) -> tuple[Stream, Node] | None:
    """(stream, value) whose different values are counted.  Raises NotYet where one sample cannot serve."""
    found = [each.argument for each in group.aggregates if each.distinct and each.argument is not None]
    if not found:
        return None
    own = {field.name for field in leaves[0].fields}
    if len(leaves) > 1 or len(set(found)) > 1 or not own >= set(columns_of(found[0])):
        raise NotYet(
            "standing aggregates: needed count(DISTINCT ...) of one value of one stream, by which it is sampled; got "
            f"{'several values' if len(set(found)) > 1 else 'a join'}; ask each for itself"
        )
    return leaves[0], found[0]


def _alone(group: Group, leaves: int) -> AggregateItem | None:
    """The one aggregate of a query without groups whose interval is told."""
    if leaves > 1 or group.by or len(group.aggregates) != 1:
        return None
    (only,) = group.aggregates
    return only if only.function in ("count", "sum", "avg") else None


def _scaled(plan: Plan, share: float, alone: AggregateItem | None) -> Plan:
    """The plan with counts and sums divided by the share that was sampled; what is of relations alone as it is."""
    if not _has_stream(plan):
        return plan
    if not isinstance(plan, Group):
        return map_inputs(plan, lambda each: _scaled(each, share, alone))
    items = [Item(each.field, Column(each.name, _kind(each.field), True)) for each in plan.by]
    for each in plan.aggregates:
        node: Node = Column(each.name, _kind(each.field), True)
        if each.function in ("count", "sum") and share < 1.0:
            node = Arithmetic("/", node, Constant(share, "number"), "number")
            if pa.types.is_integer(each.field.type):
                node = Call("round", (node,), "number")
        items.append(Item(each.field, node))
    if alone is not None and alone.function != "count":
        assert alone.argument is not None
        kinds = (pa.int64(), pa.float64(), pa.float64())
        extra = tuple(
            AggregateItem(Field(name, kind), function, alone.argument)
            for name, function, kind in zip(_HIDDEN, _EXTRA, kinds, strict=True)
        )
        plan = replace(plan, aggregates=(*plan.aggregates, *extra))
    return Project(plan, tuple(items))


def _has_stream(plan: Plan) -> bool:
    return any(isinstance(leaf, Stream) for leaf in leaves_of(plan))


def _kind(field: Field) -> Any:
    """What a column of this type is to expressions."""
    kind = field.type
    if pa.types.is_integer(kind):
        return "integer"
    return "number" if pa.types.is_floating(kind) or pa.types.is_decimal(kind) else "other"
