"""Standing queries WITH PREFERENCE within a BUDGET: joins and selections, promising regions first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from nile.exact.pipeline import figures as plan_figures
from nile.exact.state.held import Held, State
from nile.execution.approximate.join import PreferredJoin
from nile.execution.approximate.run import Prepared, approximate
from nile.execution.approximate.selection import PreferredSelection
from nile.execution.live.approximate.waiting import JoinRows
from nile.execution.live.commits import Commits
from nile.execution.live.subscription import Subscription
from nile.execution.options import Options
from nile.operators.common.contract import Figures, LiveOperator
from nile.operators.drive.live import LiveRun
from nile.operators.drive.live_join import LiveJoin
from nile.operators.drive.live_multiway import LiveMultiway
from nile.preferences.budget import Budget, BudgetReport
from nile.preferences.state import SALT
from nile.sql.plan import Query, leaves_of
from nile.streams.accounting import Accounting
from nile.streams.live import LiveStream
from nile.streams.manager import TupleBatch
from nile.summaries.errors import ConfigError, NotYet
from nile.summaries.estimate import Estimate
from nile.summaries.hashing import KeyHasher
from nile.summaries.heavy import pa

__all__ = ["ApproximateSubscription"]

Array = np.ndarray[Any, Any]
_EVER = (1 << 63) - 1


class ApproximateSubscription(Subscription):
    """A standing join or selection of live streams WITH PREFERENCE.  Made by `Database.subscribe`.

    It sees later pushes, and finds what `Database.sql` finds over the same tuples with the same budget, in the same
    order, as they come.  It is read as a `Subscription` is: `poll()`, iterating, `follow()`, a callback.  A weighted
    join has the column `_weight`.  What an answer tells (`estimate`, `budget`, `coverage`, `figures`, `accounting`) it
    tells as of now.
    Memory: tuples of up to two windows, and what waits for credit.

    >>> import nile, pyarrow as pa
    >>> with nile.connect() as db:
    ...     for name in ("north", "south"):
    ...         db.stream(name, pa.schema([("at", pa.float64()), ("item", pa.string())]), time="at")
    ...     both = db.subscribe(
    ...         "SELECT n.at AS n, s.at AS s, n.item FROM north n, south s WHERE n.item = s.item "
    ...         "WITH PREFERENCE desc n.item WINDOW '10 s'", budget=0.9)
    ...     _ = db.push("north", {"at": [1.0, 2.0], "item": ["tea", "cup"]})
    ...     _ = db.push("south", {"at": [3.0, 4.0], "item": ["tea", "pot"]})
    ...     db.advance(60.0)
    ...     [row for batch in both for row in batch.to_pylist()]
    [{'n': 1.0, 's': 3.0, 'item': 'tea'}]
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
        super().__init__(commits, callback)
        options.check_approximate()
        if "share" in (query.budget or ()) or (isinstance(options.budget, Budget) and options.budget.share):
            if options.replay not in (None, "data"):
                raise ConfigError(
                    f"subscribe: needed live streams at their own pace; got replay {options.replay!r}; leave it out"
                )
            options = replace(options, replay="data")  # credit comes with time, and what finds no work expires
        self.query = query
        if query.preference is not None and any(term.parts or term.factor for term in query.preference.terms):
            raise NotYet(
                "standing query: needed a preference over columns, whose values its own grid counts; got one over "
                "expressions; name a column, or none"
            )
        self._prepared = approximate(names, query, options, standing=True)
        self._operator = _operator_of(self._prepared, live)
        self.schema = self._prepared.schema
        if isinstance(self._operator, PreferredSelection):
            stream = self._operator.standing()
            self._arrivals = [JoinRows(stream, self._operator.reads, live[stream.name], structs=True)]
            self._join: LiveOperator[Any] = self._operator.live()
        else:
            self._operator.standing()
            self._arrivals = [
                JoinRows(stream, (place.key, *place.further), live[stream.name])
                for stream, place in zip(self._operator.streams, self._operator.bound.places, strict=True)
            ]
            self._join = self._live_join(self._operator, names.hasher)
        self.plan: Any = self._join.plan
        self._streams = {each.live.name: each.live for each in self._arrivals}
        self._run = LiveRun(self._join)
        self._granted: float | None = None
        if state is not None:
            self._go_on_from(Held(state, "state of a standing query"))

    def _live_join(self, operator: PreferredJoin, hasher: KeyHasher) -> LiveOperator[Any]:
        """The join: of two streams, or of several or under a condition.  Raises KeyTypeError."""
        if operator.bound.is_pair:
            pair = LiveJoin(operator.plan, hasher)
            for each in self._arrivals:  # keys that never compare are refused here and not by a push
                pair.encode(each.keys())
            return pair
        condition = operator.bound.condition

        def passing(ordinals: tuple[Array, ...]) -> Array:
            assert condition is not None
            columns, names = [], []
            for k, (each, mine) in enumerate(zip(self._arrivals, ordinals, strict=True)):
                held, places = each.columns(mine)
                rows = pa.array(places)
                for name in condition.columns(k):
                    columns.append(held[name].take(rows).combine_chunks())
                    names.append(condition.name_of(k, name))
            return condition.passing(pa.RecordBatch.from_arrays(columns, names=names))

        windows = operator.bound.windows

        def within(times: tuple[Array, ...]) -> Array:
            assert windows is not None
            return windows.passing(np.stack(times, axis=1))

        several = LiveMultiway(
            operator.plan, len(self._arrivals), passing=None if condition is None else passing,
            within=None if windows is None else within, hasher=hasher,
        )  # fmt: skip
        for each in self._arrivals:
            several.encode(each.keys())
        return several

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open"
        return (
            f"<nile.ApproximateSubscription over {', '.join(self._streams)}, {self.plan.preference} within "
            f"{self.plan.budget}: {len(self._found)} batches wait, {state}>"
        )

    @property
    def accounting(self) -> dict[str, Accounting]:
        """Of each stream as the statement calls it: in = applied + late + shed + rejected, since it was asked.

        shed: turned away at admission, or still waiting for credit.
        """
        with self._lock:
            told = {}
            for each, shed in zip(self._arrivals, self._join.figures.shed, strict=True):
                told[each.alias] = each.accounting
                told[each.alias].shed_applied(shed)
                told[each.alias].check()
            return told

    @property
    def memory(self) -> int:
        """Bytes of the operator's state and of the rows it may still need."""
        with self._lock:
            return int(self._join.memory.total) + sum(each.nbytes for each in self._arrivals)

    @property
    def operators(self) -> tuple[plan_figures.Figures, ...]:
        """As of every standing query: the one operator."""
        with self._lock:
            came = sum(each.applied for each in self.accounting.values())
            kind = "selection" if isinstance(self._operator, PreferredSelection) else "join"
            return (plan_figures.Figures(None, (), kind, came, self.outputs, 0, None, self.memory),)

    @property
    def figures(self) -> Figures:
        """Counts and costs so far."""
        with self._lock:
            return self._join.figures

    @property
    def budget(self) -> BudgetReport:
        """Asked and spent so far, in the unit asked in and as a share of the exact cost."""
        with self._lock:
            told = self._run.budget
            return told if self._granted is None else replace(told, asked=self._granted)

    @property
    def coverage(self) -> float:
        """The mean share of the window, in time, that probes could still reach (1 unless data was forgotten)."""
        return self.figures.coverage

    @property
    def estimate(self) -> Estimate:
        """How many pairs the exact answer has so far, as `Answer.estimate` tells."""
        with self._lock:
            return self._join.estimate

    def deal(self, share: float) -> None:
        """Multiply what is granted from here on: its part of a budget that it shares with others over other keys.

        A join of two streams; others are granted what they always were.
        """
        with self._lock:
            if isinstance(self._join, LiveJoin):
                self._join.dealt = share

    @property
    def salt(self) -> int | None:
        """What tells the level of each key below which a sample of two streams takes it in; None: there is no such."""
        join = self._join
        return int(join.state.setting[SALT]) if isinstance(join, LiveJoin) and join.follower is not None else None

    def deal_sample(self, matches: float, share: Callable[[float, float, float], tuple[float, float]]) -> None:
        """`deal` of a sample: `LiveJoin.deal_sample`.

        matches: what a tuple is expected to have, before any has come.
        """
        with self._lock:
            if isinstance(self._join, LiveJoin):
                self._join.deal_sample(matches, share)

    def check_budget(self, fraction: float) -> tuple[LiveJoin, float]:
        """That so much of the exact cost can be granted from here on; (the join, what was asked at first).

        Raises ConfigError.
        """
        asked = self.plan.budget.fraction
        if not isinstance(self._join, LiveJoin) or asked is None or self.plan.is_exact or not 0.0 < fraction < 1.0:
            raise ConfigError(
                "budget: needed a join of two streams within a fraction, and another one between 0 and 1; got "
                f"{fraction:g} for {self!r}; ask for a query of its own"
            )
        return self._join, float(asked)

    def set_budget(self, fraction: float) -> Query:
        """Grant so much of the exact cost from here on; the query that says so.  Raises ConfigError.

        Of a join of two streams within a fraction; what was granted before stays.
        """
        with self._lock:
            join, asked = self.check_budget(fraction)
            join.dealt = fraction / asked
            self._granted = fraction
            return replace(self.query, budget=("fraction", fraction))

    def capture(self) -> State:
        """What the query holds: its operator's state, the rows it may need, outputs that nobody has read.

        For `nile.execution.envelopes.flat` and `packed`; the same tuples pushed and outputs read give the same bytes.
        """
        with self._lock:
            return {
                **self._mailbox(),
                "join": self._run.capture(),
                "arrivals": [
                    each.capture(first) for each, first in zip(self._arrivals, self._join.needed_from(), strict=True)
                ],
            }

    def _go_on_from(self, held: Held) -> None:
        """Raises EnvelopeError for a state that is not of this query."""
        self._refill(held)
        for each, part in zip(self._arrivals, held.parts("arrivals", len(self._arrivals)), strict=True):
            each.restore(part)
        self._run.restore(held.state("join"), tuple(each.keys() for each in self._arrivals))
        for each, tuples in zip(self._arrivals, self._join.tuples, strict=True):
            if each.tuples != tuples:
                held.refuse("rows of the tuples held", f"{each.tuples} rows of {tuples} tuples")
            if not each.waits_after(self._join.last):
                held.refuse("tuples that wait for their turn after those that had it", "earlier ones")
        held.end()

    def _progress(self) -> None:
        if (at := self._passed()) is not None:
            self._go_on(at)

    def _finish(self) -> None:
        self._go_on(_EVER)

    def _arrived(self, name: str, batch: TupleBatch) -> None:
        for each in self._arrivals:
            if each.live.name == name:
                each.take(batch)
        self._progress()

    def _go_on(self, until: int) -> None:
        """Join what came up to `until`, both ends included."""
        ts, keys = zip(*(each.due(until) for each in self._arrivals), strict=True)
        for outputs in self._run.take(ts, keys, self._commits.began):
            for batch in self._prepared.selected(iter([self._rows(outputs)])):
                self._hand_out(batch)
        for each, first in zip(self._arrivals, self._join.needed_from(), strict=True):
            each.let_go(first)

    def _rows(self, outputs: Any) -> pa.RecordBatch:
        held, places = [], []
        for each, ordinals in zip(self._arrivals, outputs.ordinals, strict=True):
            columns, at = each.columns(ordinals)
            held.append(columns)
            places.append(at)
        return self._operator.taken(held, places, outputs.weight)


def _operator_of(prepared: Prepared, live: dict[str, LiveStream]) -> PreferredJoin | PreferredSelection:
    """The operator of a query that has a standing one."""
    what = _without_operator(prepared, live)
    if what is not None:
        raise NotYet(
            f"subscribe: needed a selection, or a window join on one key, of live streams, for an approximate standing "
            f"query; got {what}, which has no standing operator yet; leave the preference out, or ask sql() over what "
            "is kept"
        )
    operator = prepared.operator
    assert isinstance(operator, PreferredJoin | PreferredSelection)
    return operator


def _without_operator(prepared: Prepared, live: dict[str, LiveStream]) -> str | None:
    """What keeps a query from being one; None: nothing."""
    operator = prepared.operator
    if prepared.shape.top:
        return "ORDER BY or LIMIT over outputs that have no end"
    if isinstance(operator, PreferredSelection):
        (name,) = (leaf.name for leaf in leaves_of(prepared.query.plan))
        return None if name in live else f"'{name}', which is not live"
    assert isinstance(operator, PreferredJoin)
    finite = [stream.name for stream in operator.streams if stream.name not in live]
    if finite:
        return f"'{finite[0]}', which is not live"
    if operator.plan.window is None:
        raise ConfigError("subscribe: needed a WINDOW, beyond which tuples are evicted; got none; say WINDOW '1 hour'")
    return None
