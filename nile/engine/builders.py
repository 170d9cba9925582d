"""The database's interface besides SQL: joins, selections and aggregates step by step, and metadata of streams."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, overload

from nile.answers.aggregate_query import AggregateQuery, aggregate_query
from nile.answers.bound_selection import BoundSelection
from nile.answers.join_query import JoinQuery, MultiwayQuery, join_query
from nile.answers.selection_query import SelectionQuery
from nile.answers.standing import StandingQueries, standing_queries
from nile.base.names import names_given
from nile.base.raw import check_columns
from nile.execution.registry import Registry
from nile.execution.statement.builder import QueryBuilder
from nile.operators.inputs.joining import Loaded, load_stream
from nile.operators.inputs.loading import Columns, load_columns
from nile.operators.inputs.selecting import read_predicates
from nile.pyramid.grid.manager import SummaryManager
from nile.streams.manager import StreamManager
from nile.summaries.heavy import pa

__all__ = ["Builders"]


class Builders:
    """Queries over the streams of a database, which it has under their names."""

    _names: Registry

    def query(self, source: str, *, alias: str | None = None) -> QueryBuilder:
        """Build a query step by step: db.query("store1", alias="a").where("price > 3").select("item_id").

        See `nile.execution.statement.builder.QueryBuilder`.
        """
        self._names.check_open()
        return QueryBuilder.over(self._names, source, alias)

    def summary(self, name: str) -> SummaryManager:
        """The summary made by CREATE SUMMARY: ask it for estimates, zones and memory.

        A live stream's summary is kept up to date; any other is built now.  Raises UnknownStream.
        """
        return self._names.summary(name)

    @overload
    def join(  # type: ignore[overload-overlap]
        self,
        left: str,
        right: str,
        /,
        *,
        on: str | tuple[str, ...],
        window: str | float | timedelta | None = None,
        where: None = None,
    ) -> JoinQuery: ...

    @overload
    def join(
        self,
        *streams: str,
        on: str | Sequence[str] | None = None,
        left_on: str | Sequence[str] | None = None,
        right_on: str | Sequence[str] | None = None,
        window: str | float | timedelta | None = None,
        where: str | None = None,
    ) -> MultiwayQuery: ...

    def join(
        self,
        *streams: str,
        on: str | Sequence[str] | None = None,
        left_on: str | Sequence[str] | None = None,
        right_on: str | Sequence[str] | None = None,
        window: str | float | timedelta | None = None,
        where: str | None = None,
    ) -> JoinQuery:
        """A window join of two streams or more on equal values of `on`.

        streams: names, or "name AS alias"; a self-join needs aliases if there is a condition or a third stream.  on: a
        column that all streams have; a list of such columns, which form one key (summaries count, and preferences
        weigh, the first); or a tuple with each stream's column.  left_on, right_on: the same for two streams whose
        columns have different names.  window: as for `JoinQuery.within`; every two tuples of an output lie within it.
        where: a condition in SQL over the columns of all streams, "a.price > 2 * b.price".
        Raises UnknownStream, UnknownColumn, ExpressionError, ConfigError.
        """
        query = join_query(self._names, streams, on, where, left_on, right_on)
        return query if window is None else query.within(window)

    def standing(self, queries: Sequence[JoinQuery], *, weights: Sequence[float] | None = None) -> StandingQueries:
        """Joins that run together on one budget; a stream is kept, and charged, once for all joins of two that use it.

        A join of several streams, a self-join, or a join under a condition keeps its streams for itself.  weights: one
        per query, above 0: how the budget is shared under `method="nile"` (None: equally); what one query cannot use
        goes to the others in proportion.  `method="paper"` alternates and has no weights.  Raises ConfigError.
        """
        return standing_queries(self._names, queries, weights)

    def select(
        self,
        stream: str,
        *,
        on: str,
        predicates: Mapping[str, str],
        window: str | float | timedelta | None = None,
    ) -> SelectionQuery:
        """Standing selections over a stream: {name: condition}.

        on: the column that is indexed and summarised, the one most conditions use; conditions may use others too.
        window: how long a selected tuple stays valid; None: a filter.  Raises UnknownStream, UnknownColumn,
        ExpressionError, ConfigError.
        """
        check_columns(self.schema(stream), (on,), where=f"stream '{stream}'")
        read = read_predicates(predicates, self.schema(stream), stream=stream)
        query = SelectionQuery(self._names, BoundSelection(stream, on, read))
        return query if window is None else query.within(window)

    def aggregate(
        self,
        stream: str,
        aggregates: Mapping[str, str],
        *,
        where: str | None = None,
        predicates: Mapping[str, str] | None = None,
        by: str | Sequence[str] | None = None,
        window: str | float | timedelta | None = None,
        between: tuple[Any, Any] | None = None,
    ) -> AggregateQuery:
        """Aggregates over a stream: {name: text}, such as {"revenue": "sum(price * quantity)", "n": "count(*)"}.

        where: a condition for all.  predicates: {name: condition}, many standing queries at once.  by: columns
        or expressions to group by.  window: only the most recent span of time.  between: (begin, end), a time range.
        Raises UnknownStream, UnknownColumn, ExpressionError, KeyTypeError, ConfigError.
        """
        return aggregate_query(
            self._names, stream, aggregates, where=where, predicates=predicates, by=by, window=window, between=between
        )

    def schema(self, name: str) -> pa.Schema:
        """The columns of a registered stream.  Raises UnknownStream."""
        return self._names.schema(name)

    def time_column(self, name: str) -> str:
        """The event-time column of a registered stream.  Raises UnknownStream."""
        return self._names.time_column(name)

    def load_columns(self, name: str, columns: tuple[str, ...], *, key: str | None = None) -> Columns:
        """Several columns of a stream, in order.  key: of a join that numbers its tuples alike; None: no join."""
        columns = tuple(names_given(columns, where="load_columns"))
        return load_columns(self.manager(name, key or self.time_column(name), columns), columns)

    def manager(self, name: str, key: str, carry: tuple[str, ...] = ()) -> StreamManager:
        """A fresh stream manager over a registered stream, with `key` as the join key; `carry`: further columns."""
        return self._names.manager(name, key, tuple(names_given(carry, where="manager, carry")))

    def load(self, name: str, key: str) -> Loaded:
        """Read a stream to its end, in order."""
        return load_stream(self.manager(name, key))

    def summarize(self, name: str, on: str, *, granularity: str | float | timedelta, **options: Any) -> SummaryManager:
        """Build the summary of a stream over column `on`: ask it for estimates, zones and memory.

        granularity: what G1 covers; options: fields of SummarySpec (rate, depth, buckets, rows, columns, ...), a
        max_length as the granularity in seconds or as "15 min".
        """
        return self._names.summarize(name, on, granularity, options)
