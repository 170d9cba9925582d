"""Which statements a scan of the lake can answer, and what of the lake each of their streams reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from nile.aggregates.catalogue import CATALOGUE, RUNNING
from nile.execution.approximate.join import stream_of
from nile.execution.approximate.join_terms import check_terms, window_of
from nile.execution.approximate.lookups import Lookups
from nile.execution.approximate.shape import Shape, shape_of
from nile.execution.exact.flow import Home
from nile.execution.key_columns import equalities, one_key
from nile.execution.options import Options
from nile.execution.progress.input import bounded, own_columns, values_of
from nile.execution.values import all_of
from nile.expressions.tree import conjuncts
from nile.preferences.budget import Budget
from nile.preferences.error_target import ErrorTarget
from nile.pyramid.lake.lake import LakeStream
from nile.pyramid.lake.part import TS
from nile.spark.scan.task import ScanTask, TaskSide
from nile.sql.plan import Group, Join, Limit, Preference, Query, Sort, Stream, walk
from nile.streams.lake import LakeSource
from nile.summaries.errors import BudgetError, ConfigError, NotYet
from nile.summaries.hashing import hash_keys
from nile.summaries.heavy import pa, pc
from nile.summaries.key_types import key_family

if TYPE_CHECKING:
    from nile.execution.registry import Registered
    from nile.operators.inputs.shared_grid import SharedSummary

__all__ = ["Database", "ScanQuery", "scan_query"]

Array = np.ndarray[Any, Any]

DEFAULT_CAP = 4
_DOES = (
    "engine='spark' answers joins of two streams of a lake on the column both are clustered by, with one WINDOW or "
    "none, selections of one stream, and aggregates of both, by partitions of two cells at most, near in time"
)
_UNUSED = (
    "algorithm", "scheduling", "windows", "output", "method", "guide", "costs", "replay", "replay_mean", "speed", "by"
)  # fmt: skip
_UNITS = ("fraction", "seconds", "deadline", "outputs")


class Database(Home, Protocol):
    """What is asked of a database."""

    offsets: Mapping[str, Any]

    def stream(self, name: str) -> Registered:
        """A registered stream."""

    def shared(self, name: str, column: str) -> SharedSummary | None:
        """The summary of a stream's column."""


@dataclass(frozen=True, slots=True)
class ScanQuery:
    """A statement that a scan can answer, checked.

    kind: of the preference, "" none; streams: of the lake, one per side; task: what tasks do, without partitions;
    limit: (rows to leave out, rows at most) or None; group: the aggregates, None: rows; target: of ERROR, up to which
    partitions are read.
    """

    kind: str
    fade: float
    streams: tuple[LakeStream, ...]
    task: ScanTask
    budget: Budget | None
    limit: tuple[int, int | None] | None
    group: Group | None
    seed: int
    confidence: float
    target: ErrorTarget | None = None

    @property
    def asked(self) -> Array | None:
        """Hashes of the keys that the conditions ask for, uint64; None: they do not say, or all."""
        found: pa.Array | None = None
        for side in self.task.sides:
            kind = side.schema.field(side.key).type
            for part in conjuncts(side.where):
                said = values_of(part, side.stream.alias)
                if said is None or said[0] != side.key:
                    continue
                try:
                    values = pa.array(said[1], kind)
                except (pa.ArrowInvalid, pa.ArrowTypeError):
                    continue  # values that the column cannot have; reading shows it
                found = values if found is None else found.filter(pc.is_in(found, values.cast(found.type)))
        return None if found is None else hash_keys(found.unique())

    @property
    def most(self) -> int | None:
        """Outputs that are wanted at most."""
        wanted = []
        if self.limit is not None and self.limit[1] is not None:
            wanted.append(sum(each or 0 for each in self.limit))
        if self.budget is not None and self.budget.unit == "outputs":
            wanted.append(int(self.budget.amount))
        return min(wanted) if wanted else None


def scan_query(database: Database, query: Query, options: Options) -> ScanQuery:
    """A statement, checked; nothing is read.  Raises NotYet, ConfigError, BudgetError, KeyTypeError."""
    kind = "" if query.preference is None else query.preference.kind
    if query.error is not None:
        query, kind = _sampled(query, options), "weighted"
    _check_options(options, kind)
    budget = _budget(query, options, kind)
    try:
        query = replace(query, plan=Lookups(database, query.plan, settled=query.windowed).plan)
        shape = shape_of(query.plan)
    except NotYet as error:
        raise _not_yet(str(error).split("got ")[-1].split(",")[0]) from None
    if query.preference is not None and any(term.parts or term.factor for term in query.preference.terms):
        raise _not_yet("a preference over expressions, of which the sketches of a lake know nothing")
    limit = _limit(shape, kind)
    target = None if query.error is None else ErrorTarget(*query.error)
    confidence = 0.95 if target is None else target.confidence
    if shape.group is not None:
        _check_group(shape.group, query)
    joined = isinstance(shape.core, Join)
    if options.outlier_cap is not None and not joined:
        raise ConfigError(
            "outlier_cap: needed a join under engine='spark', whose pairs it bounds; got a selection; leave it out"
        )
    if isinstance(shape.core, Join):
        task, lakes = _join(database, query, shape.core, shape)
    else:
        task, lakes = _selection(database, shape.core, shape)
    if kind == "asc" and joined:
        task = replace(task, cap=DEFAULT_CAP if options.outlier_cap is None else options.outlier_cap)
    return ScanQuery(
        kind,
        1.0 if query.preference is None else query.preference.fade,
        lakes,
        task,
        budget,
        limit,
        shape.group,
        options.seed or 0,
        confidence if options.confidence is None else options.confidence,
        target,
    )


def _join(database: Database, query: Query, join: Join, shape: Shape) -> tuple[ScanTask, tuple[LakeStream, ...]]:
    if len(join.inputs) != 2:
        raise _not_yet(f"a join of {len(join.inputs)} streams")
    streams = tuple(stream_of(each) for each in join.inputs)
    window = window_of(join, streams)
    on, rest = one_key(join)
    if on is None:
        raise _not_yet("a join without equal keys")
    if query.preference is not None:
        check_terms(query, join, on)
    sides, lakes = zip(*(_side(database, stream, name) for stream, name in zip(streams, on, strict=True)), strict=True)
    left, right = (key_family(s.schema.field(s.key).type, where=f"{s.stream.alias}.{s.key}") for s in sides)
    if left != right:
        raise ConfigError(
            f"engine='spark': needed keys of one kind; got {left} and {right}, whose hashes differ; ingest one stream "
            "with the type of the other"
        )
    residual = all_of(*equalities(join, rest), join.condition, shape.where)
    group = shape.group
    counts = (
        residual is None
        and group is not None
        and not group.by
        and all(each.function == "count" and each.argument is None for each in group.aggregates)
        and (query.preference is None or query.preference.kind != "asc")
    )
    return ScanTask(sides, window, None, residual, shape, counts, None, ()), lakes


def _selection(database: Database, stream: Stream, shape: Shape) -> tuple[ScanTask, tuple[LakeStream, ...]]:
    if stream.window is not None:
        raise _not_yet("a selection in a WINDOW")
    side, lake = _side(database, stream, None)
    return ScanTask((side,), 0, None, shape.where, shape, False, None, ()), (lake,)


def _side(database: Database, stream: Stream, on: str | None) -> tuple[TaskSide, LakeStream]:
    """A stream; on: the column of the plan that it is joined by, None: no join."""
    held = database.stream(stream.name)
    source: Any = held.source
    if not isinstance(source, LakeSource):
        raise ConfigError(
            f"engine='spark': needed streams of a lake; got '{stream.name}', which is {type(source).__name__}; "
            "`nile ingest` brings it into one, db.register(name, 'lake/stream') makes that known"
        )
    layout = source.stream.layout
    if held.time != layout.time or held.lateness is not None:
        raise ConfigError(
            f"engine='spark': needed '{stream.name}' in the order of its lake, by '{layout.time}'; got time="
            f"{held.time!r}, lateness={held.lateness!r}; register it without both"
        )
    key = layout.key
    if on is not None and on != f"{stream.alias}.{key}":
        raise _not_yet(f"a join on {on}, while '{stream.name}' is clustered by '{layout.key}'")
    since, until, where = bounded(stream, layout.schema.field(layout.time).type)
    registered = () if held.where is None else held.where.columns
    columns = tuple(dict.fromkeys((TS, key, *own_columns(stream), *registered)))
    condition = None if held.where is None else held.where.tree
    side = TaskSide(
        source.stream.path.absolute(), stream, source.schema, key, columns, condition, where, since, until
    )  # fmt: skip
    return side, source.stream


def _not_yet(came: str) -> NotYet:
    return NotYet(f"{_DOES}; got {came}; leave engine out to run it in this process")


def _check_options(options: Options, kind: str) -> None:
    given = [name for name in _UNUSED if getattr(options, name) is not None] + [name for name, _ in options.using]
    if given:
        raise ConfigError(
            f"{given[0]}: needed a query of this process; got engine='spark', which has none; leave it out"
        )
    if options.outlier_cap is not None and kind != "asc":
        raise ConfigError(
            f"outlier_cap: needed WITH PREFERENCE asc, which it bounds; got {kind or 'no preference'}; leave it out"
        )
    if options.emit not in (None, "append", "snapshot"):
        raise ConfigError(f"emit: needed append or snapshot under engine='spark'; got {options.emit!r}; leave it out")


def _sampled(query: Query, options: Options) -> Query:
    """A query to an ERROR, of a random sample: partitions are drawn until it is met.  Raises NotYet, BudgetError."""
    kind = "weighted" if query.preference is None else query.preference.kind
    if kind != "weighted":
        raise NotYet(
            "engine='spark', ERROR: needed WITH PREFERENCE weighted (or none), a random sample; got "
            f"{kind}, whose partitions are not one; say weighted, or BUDGET"
        )
    if query.budget is not None or options.budget is not None:
        raise BudgetError(
            "engine='spark', ERROR: needed no BUDGET beside it, since partitions are read until the error is met, "
            "or all of them; got one; leave one of them out"
        )
    group = next((each for each in walk(query.plan) if isinstance(each, Group)), None)
    for item in () if group is None else group.aggregates:
        if item.distinct or CATALOGUE[item.function].interval == "one-sided":
            raise NotYet(
                f"engine='spark', ERROR: needed aggregates that a sample of partitions bounds; got {item.name}, which "
                "unread partitions may change by any amount; say BUDGET for what was found"
            )
    return query if query.preference is not None else replace(query, preference=Preference("weighted"))


def _budget(query: Query, options: Options, kind: str) -> Budget | None:
    budget = options.with_budget(query.budget, "engine='spark'")
    if budget is not None and budget.unit not in _UNITS:
        raise BudgetError(
            f"engine='spark': needed a budget of {', '.join(_UNITS)}; got {budget.unit}, which goes with arrivals; "
            "Budget(fraction=0.1) is a tenth of the bytes"
        )
    if budget is not None and budget.unit == "outputs" and kind == "weighted":
        raise BudgetError(
            "engine='spark', weighted: needed a budget of fraction, seconds or deadline; got outputs, whose cut would "
            "bias the sample; Budget(fraction=0.1) is a tenth of the bytes"
        )
    return budget


def _limit(shape: Shape, kind: str) -> tuple[int, int | None] | None:
    if any(isinstance(step, Sort) for step in shape.top):
        raise _not_yet("ORDER BY, which must see all rows first")
    limits = [step for step in shape.top if isinstance(step, Limit)]
    if limits and kind == "weighted":
        raise _not_yet("LIMIT with weighted, whose sample it would cut")
    return (limits[0].offset, limits[0].count) if limits else None


def _check_group(group: Group, query: Query) -> None:
    if query.windowed and query.preference is None:
        raise _not_yet("aggregates of what a WINDOW holds at its end, for want of a preference")
    weighted = query.preference is not None and query.preference.kind == "weighted"
    for each in group.aggregates:
        if each.distinct and weighted:
            raise NotYet(
                "engine='spark', weighted: needed aggregates that a sample of partitions can estimate; got "
                f"{each.function} of DISTINCT values: the number in unread partitions is unknown; say desc for "
                "those found"
            )
        if each.function not in RUNNING or (each.distinct and each.function != "count"):
            raise _not_yet(f"{each.function}{' of DISTINCT values' if each.distinct else ''}")
