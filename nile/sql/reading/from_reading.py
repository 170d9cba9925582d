"""Reading FROM: names, subqueries, window functions over streams, and how they are joined."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any, Literal

from nile.expressions.places import Fault, NotYetFault
from nile.expressions.taking import start_of
from nile.expressions.tree import Column, Constant
from nile.mining.call import FUNCTIONS, Call
from nile.sql.binding.scope import find
from nile.sql.over import SESSIONS
from nile.sql.parsed import (
    Block,
    Derived,
    Expression,
    HopCall,
    Joined,
    OverCall,
    Reference,
    SelectItem,
    Source,
    Star,
    Streamed,
    Table,
    Written,
)
from nile.sql.reading.inline_relations import listed_rows, listed_series
from nile.sql.reading.joining import join_kind, read_unnest
from nile.sql.reading.over_reading import is_span, span_of
from nile.sql.reading.own_windows import SESSION, STREAM_FUNCTIONS, OwnWindow, SampleCall
from nile.sql.reading.select_expressions import ExpressionReader, plain_only
from nile.summaries.errors import ConfigError

__all__ = ["QUERIES", "FromReader", "StreamKind", "alias_of", "stream_of"]

MAX_SOURCES = 64
QUERIES = ("Select", "Subquery", "Union", "Intersect", "Except")
"""What sqlglot calls a query in parentheses."""
StreamKind = Literal["istream", "dstream", "rstream"]
_NOT_THERE = {
    "Lateral": "LATERAL is not there yet; write a JOIN with the query, grouped or numbered by what it is joined on",
}
_STREAMS: Mapping[str, StreamKind] = {
    "ISTREAM": "istream",
    "DSTREAM": "dstream",
    "RSTREAM": "rstream",
}


_AS_WRITTEN = {"READPARQUET()": "read_parquet()", "READCSV()": "read_csv()", "READJSON()": "read_json()"}


def stream_of(node: Any) -> StreamKind | None:
    """Which stream of a relation a call asks for, if it is one."""
    return _STREAMS.get(str(node.this).upper()) if type(node).__name__ == "Anonymous" else None


def alias_of(node: Any) -> tuple[Any, tuple[str, ...]]:
    """The name (an identifier, or None) and the columns' names that an alias gives."""
    if node is None:
        return None, ()
    plain_only(node, "this", "columns")
    return node.this, tuple(str(each.this) for each in node.args.get("columns") or ())


class FromReader:
    """Reads the FROMs of one statement.

    own, samples: windows in brackets and SAMPLEs, by the offset of the name before; query, fragment, streamed: what
    reads queries, the condition in a bracket, and streams of relations; view: the query that a name stands for, None
    where it is no view's.  named: the queries of WITH; used, sampled: those met; count: of streams and relations.
    """

    def __init__(
        self,
        own: Mapping[int, OwnWindow],
        samples: Mapping[int, SampleCall],
        expressions: ExpressionReader,
        query: Callable[[Any, int], Written],
        fragment: Callable[[int, int], Expression],
        streamed: Callable[[StreamKind, Any, int], Streamed],
        view: Callable[[str, int], Derived | None],
    ) -> None:
        self._own = own
        self._samples = samples
        self._expressions = expressions
        self._query = query
        self._fragment = fragment
        self._streamed = streamed
        self._view = view
        self.count = 0
        self.named: dict[str, Derived] = {}
        self._nameless = 0
        self.used: set[int] = set()
        self.sampled: set[int] = set()

    def read(self, node: Any) -> tuple[Joined, ...]:
        plain_only(node.args["from_"], "this")
        sources = [Joined(self._source(node.args["from_"].this))]
        nested = list(node.args["from_"].this.args.get("joins") or ())
        for join in [*nested, *(node.args.get("joins") or ())]:
            sources.append(self._join(join))
            inside = [self._join(each) for each in join.this.args.get("joins") or ()]
            if inside and any(each.kind not in ("comma", "inner") for each in (sources[-1], *inside)):
                raise NotYetFault(
                    "an outer join around joins in parentheses is not there yet; write (SELECT ...) AS t",
                    sources[-1].start,
                )
            sources += inside
        return tuple(sources)

    def _join(self, join: Any) -> Joined:
        start = start_of(join) or 0
        words = [str(join.args.get(name) or "") for name in ("method", "side", "kind")]
        natural = words[0] == "NATURAL"
        kind = join_kind(words[natural:], start)
        plain_only(join, "this", "on", "using", "kind", "side", "method")
        using = []
        for each in join.args.get("using") or ():
            name = each.this if type(each).__name__ == "Column" else each
            using.append(Reference(None, str(name.this), start_of(each) or 0))
        on = join.args.get("on")
        if kind == "inner" and on is None and not using and not natural:
            kind = "comma"
        if kind not in ("comma", "inner") and on is None and not using and not natural:
            raise Fault(f"needed ON or USING after {kind.upper()} JOIN; got neither; write ON a.x = b.x", start)
        condition = None if on is None else self._expressions.read(on)
        return Joined(self._source(join.this), condition, tuple(using), kind, start, natural)

    def add(self, count: int, start: int) -> None:
        """So many more streams and relations are read.  Raises Fault for too many."""
        self.count += count
        if self.count > MAX_SOURCES:
            raise Fault(f"needed at most {MAX_SOURCES} streams and relations; got more", start)

    def _source(self, node: Any) -> Source:
        start = start_of(node) or 0
        self.add(1, start)
        name = type(node).__name__
        if name == "Values":
            return self._listed(node, *alias_of(node.args.get("alias")), start)
        if name == "Lateral" and type(node.this).__name__ == "Unnest" and not node.this.args.get("alias"):
            node.this.set("alias", node.args.get("alias"))
            node, name = node.this, "Unnest"
        if name == "Unnest":
            return read_unnest(node, alias_of(node.args.get("alias")), self._expressions.read, start)
        if name in _NOT_THERE:
            raise NotYetFault(_NOT_THERE[name], start)
        if name not in ("Table", "Subquery"):
            raise Fault(f"needed the name of a stream or relation; got {name.upper()}", start)
        plain_only(node, "this", "alias", "joins", "sample", *(("db", "version") if name == "Table" else ()))
        self._take_sample(node)
        named, columns = alias_of(node.args.get("alias"))
        if name == "Subquery" and type(node.this).__name__ == "Table" and stream_of(node.this.this) is not None:
            node = node.this  # parentheses around ISTREAM (...)
            named = alias_of(node.args.get("alias"))[0] if named is None else named
        elif name == "Subquery":
            if type(node.this).__name__ not in QUERIES:
                raise Fault("needed a query in parentheses, or a name without; got something else", start)
            query, called = self._query(node.this, 1), self._unnamed() if named is None else str(named.this)
            own, sample = self._plain_window(start, named), self._sample_of(named)
            return Derived(query, called, start, columns, own, sample)
        identifier = node.this
        if (kind := stream_of(identifier)) is not None:
            if named is None:
                raise Fault(f"needed a name for {kind.upper()} (...) in FROM; got none; write AS t", start)
            own, sample = self._plain_window(start, named), self._sample_of(named)
            return Derived(self._streamed(kind, identifier, 1), str(named.this), start, columns, own, sample)
        if type(identifier).__name__ == "Anonymous" and str(identifier.this).upper() in STREAM_FUNCTIONS:
            if str(identifier.this).upper() == SESSION:
                return self._session(identifier, named, columns, start)
            return self._hop(identifier, named, columns, start)
        if type(identifier).__name__ == "Anonymous" and str(identifier.this).upper() in FUNCTIONS:
            return self._mined(identifier, named, columns, start)
        if type(identifier).__name__ in ("GenerateSeries", "Values"):
            return self._listed(identifier, named, columns, start)
        if type(identifier).__name__ != "Identifier":
            got = _function(identifier)
            hint = (
                "; name the file itself: FROM 'sales.parquet'"
                if got.startswith(("READPARQUET", "READCSV", "READJSON"))
                else ""
            )
            raise Fault(f"needed the name of a stream or relation; got {_AS_WRITTEN.get(got, got)}{hint}", start)
        if node.args.get("db") is not None:
            schema = getattr(node.args["db"], "this", "")  # FROM . . name has an empty one
            raise Fault(f"needed a name without a schema; got '{schema}.{identifier.this}'", start)
        known = find(str(identifier.this), self.named)
        if len(known) == 1:
            meant = self.named[known[0]]
            self._no_window(identifier)
            if named is not None:
                self._no_window(named)
            called = str((identifier if named is None else named).this)
            return Derived(
                meant.query, called, start, columns or meant.columns, None, self._sample_of(named, identifier)
            )
        if (view := self._view(str(identifier.this), start)) is not None:
            return replace(
                view,
                alias=str((identifier if named is None else named).this),
                columns=columns or view.columns,
                own=self._plain_window(start, identifier, named),
                sample=self._sample_of(named, identifier),
            )
        if columns:
            raise NotYetFault("names for the columns of a stream are not there yet; write (SELECT ...) AS t", start)
        own, where = self._window_of(identifier, named)
        sample = self._sample_of(named, identifier)
        alias = None if named is None else str(named.this)
        as_of = self._as_of(node.args.get("version"), start)
        return Table(str(identifier.this), alias, start, own, where, None, sample, None, as_of)

    def _take_sample(self, node: Any) -> None:
        """TABLESAMPLE 10 %, as if SAMPLE (10) stood behind the name."""
        given = node.args.get("sample")
        if given is None:
            return
        named = alias_of(node.args.get("alias"))[0] or node.this
        start = start_of(named) or 0
        plain_only(given, "method", "percent", "seed")
        method = str(getattr(given.args.get("method"), "this", "SYSTEM")).upper()
        share = None if given.args.get("percent") is None else self._number(given.args["percent"])
        if share is None or method not in ("SYSTEM", "BERNOULLI"):
            raise Fault("needed a percentage, such as TABLESAMPLE 10 %; got something else", start)
        if not 0 < share <= 100:
            raise Fault(f"needed a percentage above 0 and up to 100 in TABLESAMPLE; got {share:g}", start)
        seed = 0 if given.args.get("seed") is None else int(self._number(given.args["seed"]) or 0)
        self._samples = {**self._samples, start: SampleCall(share / 100, seed, start, start)}

    def _number(self, node: Any) -> float | None:
        value = self._expressions.read(node).node
        return float(value.value) if isinstance(value, Constant) and isinstance(value.value, int | float) else None

    def values(self, node: Any) -> Table:
        """VALUES as a query of its own."""
        start = start_of(node) or 0
        self.add(1, start)
        return self._listed(node, None, (), start)

    def _listed(self, node: Any, named: Any, columns: tuple[str, ...], start: int) -> Table:
        """VALUES, generate_series and range."""
        if type(node).__name__ == "Values":
            rows = [self._constants(each.expressions, start) for each in node.expressions]
            made = listed_rows(rows, columns, start)
        else:
            plain_only(node, "start", "end", "step", "is_end_exclusive")
            given = [node.args[name] for name in ("start", "end", "step") if node.args.get(name) is not None]
            function = "range" if node.args.get("is_end_exclusive") else "generate_series"
            made = listed_series(function, self._constants(given, start), columns, start)
        called = made.written.split("(")[0] or "valueslist"
        return Table(str(made), called if named is None else str(named.this), start, listed=made)

    def _constants(self, nodes: Sequence[Any], start: int) -> list[Constant]:
        made = []
        for each in nodes:
            value = self._expressions.read(each).node
            if not isinstance(value, Constant):
                raise Fault("needed literals; got something else", start_of(each) or start)
            made.append(value)
        return made

    def _as_of(self, version: Any, start: int) -> Reference | None:
        """FOR SYSTEM_TIME AS OF stream.time."""
        if version is None:
            return None
        column = version.expression
        is_time = str(version.this) == "TIMESTAMP" and str(version.args.get("kind")) == "AS OF"
        if not is_time or type(column).__name__ != "Column" or column.args.get("db"):
            raise Fault("needed FOR SYSTEM_TIME AS OF and a time, such as o.ts; got something else", start)
        table = column.args.get("table")
        place = start_of(column) or start
        return Reference(None if table is None else str(table.this), str(column.this.this), place)

    def _mined(self, call: Any, named: Any, columns: tuple[str, ...], start: int) -> Table:
        """PEAKS (stream, value, key, prominence => 3) and the like."""
        function, names, said = str(call.this).upper(), [], {}
        for each in call.expressions:
            if type(each).__name__ == "Kwarg":
                value = self._expressions.read(each.expression).node
                if not isinstance(value, Constant) or not isinstance(value.value, int | float | Decimal | str):
                    raise Fault(f"needed a number or text for {each.this} in {function}; got something else", start)
                said[str(each.this).lower()] = value.value if isinstance(value.value, int | str) else float(value.value)
            elif type(each).__name__ == "Column" and not said and not each.args.get("table"):
                names.append(str(each.this.this))
            else:
                raise Fault(
                    f"needed {function} (stream, value, key, option => ...), with names of columns; got something else",
                    start_of(each) or start,
                )
        if columns:
            raise NotYetFault("names for the columns of a stream are not there yet; write (SELECT ...) AS t", start)
        if named is None:
            raise Fault(f"needed a name for {function} (...) in FROM; got none; write AS t", start)
        try:
            made = Call.of(function, names, said)
        except ConfigError as error:
            raise Fault(str(error), start) from None
        own, where = self._window_of(named)
        return Table(made.stream, str(named.this), start, own, where, None, self._sample_of(named), made)

    def _hop(self, call: Any, named: Any, columns: tuple[str, ...], start: int) -> Table:
        """TUMBLE (stream, time, size) or HOP (stream, time, slide, size)."""
        name = str(call.this).upper()
        given = list(call.expressions)
        if len(given) != (3 if name == "TUMBLE" else 4) or any(type(each).__name__ != "Column" for each in given[:2]):
            form = "TUMBLE (stream, time, INTERVAL '1 minute')"
            form = form if name == "TUMBLE" else "HOP (stream, time, INTERVAL '1 minute', INTERVAL '5 minutes')"
            raise Fault(f"needed {form}; got something else", start)
        spans = []
        for each in given[2:]:
            value = span_of(self._expressions.read(each).node)
            if not isinstance(value, Constant) or not is_span(value):
                raise Fault(f"needed intervals above 0 in {name}; got something else", start_of(each) or start)
            spans.append(int(value.value or 0) * 1_000)
        hop = HopCall(str(given[1].this.this), spans[-1], spans[0], start)
        if hop.slide > hop.size:
            raise Fault("needed a slide up to the size in HOP; got a longer one, which leaves tuples out", start)
        if columns:
            raise NotYetFault("names for the columns of a stream are not there yet; write (SELECT ...) AS t", start)
        identifier = given[0].this
        own, where = self._window_of(*([identifier] if named is None else [named, identifier]))
        called = str((identifier if named is None else named).this)
        return Table(str(identifier.this), called, start, own, where, hop)

    def _session(self, call: Any, named: Any, columns: tuple[str, ...], start: int) -> Derived:
        """SESSION (stream, [key, ...] time, gap): the stream with two window functions, the bounds of its sessions."""
        given = list(call.expressions)
        stream, names = given[0] if given else None, given[1:-1]
        span = span_of(self._expressions.read(given[-1]).node) if names else None
        if stream is None or span is None or not is_span(span) or not _are_columns((stream, *names)):
            form = "SESSION (stream PARTITION BY key, time, INTERVAL '10 minutes')"
            raise Fault(f"needed {form}; got something else", start)
        own, where = self._window_of(*([stream.this] if named is None else [named, stream.this]))
        called = str((stream.this if named is None else named).this)
        references = tuple(Reference(None, str(each.this.this), start_of(each) or start) for each in names)
        *keys, time = (Column(f"#{at}") for at in range(len(names)))
        items = [SelectItem(Star(None, start), None)]
        for function, bound in zip(SESSIONS, ("window_start", "window_end"), strict=True):
            over = OverCall(function, (span,), tuple(keys), ((time, False, True),), None, None, start)
            items.append(SelectItem(Expression(Column("%0"), references, (), start, bound, (), (over,)), bound))
        table = Table(str(stream.this.this), None, start, own, where)
        return Derived(Block(tuple(items), (Joined(table),), start), called, start, columns)

    def _sample_of(self, *identifiers: Any) -> SampleCall | None:
        """The SAMPLE behind a name or its alias."""
        for identifier in identifiers:
            start = None if identifier is None else start_of(identifier)
            if start is not None and start in self._samples:
                self.sampled.add(start)
                return self._samples[start]
        return None

    def _no_window(self, identifier: Any) -> None:
        own = self._own.get(start_of(identifier) or -1)
        if own is not None:
            raise NotYetFault("a window on a query in FROM is not there yet; write it on the streams in it", own.start)

    def _unnamed(self) -> str:
        """What a query in FROM is called that has no name, as in DuckDB."""
        self._nameless += 1
        return f"unnamed_subquery{self._nameless if self._nameless > 1 else ''}"

    def _plain_window(self, start: int, *identifiers: Any) -> OwnWindow | None:
        """The window in brackets behind a query or its alias."""
        own, where = self._window_of(*identifiers)
        if where is not None:
            raise NotYetFault("WHERE in the window of a query is not there yet; write it in the query", start)
        return own

    def _window_of(self, *identifiers: Any) -> tuple[OwnWindow | None, Expression | None]:
        """The window in brackets after a stream's name or its alias."""
        for identifier in identifiers:
            start = None if identifier is None else start_of(identifier)
            if start is None or start not in self._own:
                continue
            own = self._own[start]
            self.used.add(start)
            if own.where is None:
                return own, None
            return own, self._fragment(*own.where)
        return None, None


def _are_columns(nodes: Sequence[Any]) -> bool:
    return all(type(each).__name__ == "Column" for each in nodes)


def _function(node: Any) -> str:
    if type(node).__name__ == "Anonymous":
        return f"{str(node.this)[:40]}()"
    return f"{type(node).__name__.upper()}()"
