"""Lowering a plain SELECT to Nile's own nodes: sqlglot parses, an allow-list admits its tree."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from nile.expressions.places import Fault, NotYetFault, Parameter
from nile.expressions.taking import start_of
from nile.expressions.tokens import DIALECT, MAX_DEPTH, tokens_of
from nile.expressions.tree import Constant
from nile.sql.parameters import check_places
from nile.sql.parse_errors import parse_fault
from nile.sql.parsed import (
    NO_SOURCE,
    Block,
    Derived,
    Expression,
    GroupingSets,
    Joined,
    Operation,
    Ordered,
    SelectItem,
    Star,
    Streamed,
    Table,
    Written,
)
from nile.sql.reading.clauses import Clauses, split_clauses
from nile.sql.reading.from_reading import QUERIES, FromReader, StreamKind, alias_of, stream_of
from nile.sql.reading.grouping_reading import GROUPINGS, read_sets
from nile.sql.reading.inline_relations import listed_rows
from nile.sql.reading.plainly import plain_select, plain_values
from nile.sql.reading.select_expressions import ExpressionReader, plain_only
from nile.sql.reading.views import Views
from nile.summaries.heavy import exp, sqlglot
from nile.summaries.heavy import sqlglot_errors as errors

if TYPE_CHECKING:
    from sqlglot import exp

__all__ = ["read_fragment", "read_select"]

_LOG = logging.getLogger("sqlglot")  # once: asking takes the lock of all logging, which an interrupt could leave taken
_OPERATIONS: Mapping[str, Literal["union", "intersect", "except"]] = {
    "Union": "union",
    "Intersect": "intersect",
    "Except": "except",
}


def read_select(
    text: str, values: Mapping[int, Parameter], clauses: Clauses, whole: str, views: Views | None = None
) -> Written:
    """The query in `text`, which has no clauses of Nile's own any more.

    values: what parameters hold, by the offset where they stand; clauses: what was split off; whole: the statement with
    its clauses; views: those that it may name.  Raises Fault.
    """
    check_places(text, values, 0, len(text))
    return _SelectReader(text, values, clauses, whole, views).whole()


def read_fragment(text: str, begin: int, end: int, values: Mapping[int, Parameter]) -> Expression:
    """One condition inside of a statement, from offset to offset.  values: parameters, for which `text` has zeros."""
    reader = _SelectReader(text, values, Clauses(), text)
    return reader.fragment(begin, end)


class _SelectReader:
    def __init__(
        self,
        text: str,
        values: Mapping[int, Parameter],
        clauses: Clauses,
        whole: str,
        views: Views | None = None,
    ) -> None:
        self._text = text
        self._views = views
        self._whole = whole
        self._values = values
        self._clauses = clauses
        self._expressions = ExpressionReader(values, self.query)
        self._sources = FromReader(
            clauses.own, clauses.samples, self._expressions, self.query, self.fragment, self._streamed, self._view
        )

    def whole(self) -> Written:
        """The one query that the text is."""
        query = self.query(self.parse(self._text))
        self.check_all_used()
        return query

    def _view(self, name: str, start: int) -> Derived | None:
        """The query that a view is; None where the name means none.  Its streams count as the statement's."""
        made = None if self._views is None else self._views.find(name)
        if self._views is None or made is None:
            return None
        with self._views.reading(made, start) as begin:
            whole = " " * begin + made.text
            clauses, rest = split_clauses(tokens_of(whole), whole, {})
            reader = _SelectReader(rest, {}, clauses, whole, self._views)
            query = reader.whole()
        self._sources.add(reader._sources.count, start)
        return Derived(query, made.name, start, made.columns)

    def parse(self, text: str, into: Any = None) -> Any:
        """sqlglot's tree.  What sqlglot would log of a statement that it knows less of is said by a Fault."""
        before, _LOG.disabled = _LOG.disabled, True
        try:
            tree = sqlglot.parse_one(text, dialect=DIALECT, into=into)
            plain_values(tree)
            return tree
        except (Fault, MemoryError):
            raise
        except errors.ParseError as error:
            raise parse_fault(error, text, self._values) from None
        except RecursionError:
            raise Fault(f"needed at most {MAX_DEPTH} levels of nesting; got more; simplify it") from None
        except Exception:  # a parser made for valid SQL trips over the rest in many ways
            raise Fault("needed a SELECT that parses; got one that does not; simplify it") from None
        finally:
            _LOG.disabled = before

    def check_all_used(self) -> None:
        for start, sample in self._clauses.samples.items():
            if start not in self._sources.sampled:
                raise Fault(
                    "needed the name of a stream or a query in FROM before SAMPLE; got something else", sample.start
                )
        for start, own in self._clauses.own.items():
            if start not in self._sources.used:
                if self._text[start] == ")":
                    raise Fault("needed a name for what a window is of; write (SELECT ...) AS t [ROWS 10]", own.start)
                raise Fault("needed a stream's name before its window in brackets; got something else", own.start)
        for start, parameter in self._values.items():
            if start not in self._expressions.used and self._text[start] == "0":
                raise parameter.misplaced(start)

    def query(self, node: Any, depth: int = 0) -> Written:
        if node.args.get("with_") is None:
            return self._query(node, depth)
        before = self._sources.named
        self._sources.named = dict(before)
        self._with(node.args["with_"], depth)
        query = self._query(node, depth)
        self._sources.named = before
        return query

    def _with(self, clause: Any, depth: int) -> None:
        """WITH name [(column, ...)] AS (query), ...: each may name those before it."""
        plain_only(clause, "expressions", "recursive")
        new: set[str] = set()
        if clause.args.get("recursive"):
            raise NotYetFault(
                "WITH RECURSIVE is not there yet; write the steps out, each as a query of WITH, or for numbers FROM "
                "generate_series(1, 10)",
                start_of(clause),
            )
        for each in clause.expressions:
            plain_only(each, "this", "alias", "materialized")
            name, columns = alias_of(each.args["alias"])
            assert name is not None
            start = start_of(name) or 0
            if str(name.this).lower() in new:
                raise Fault(f"needed a name of its own for each query of WITH; got '{name.this}' again", start)
            new.add(str(name.this).lower())
            self._sources.named = {
                old: kept for old, kept in self._sources.named.items() if old.lower() != str(name.this).lower()
            }
            self._sources.named[str(name.this)] = Derived(
                self.query(each.this, depth + 1), str(name.this), start, columns
            )

    def _query(self, node: Any, depth: int) -> Written:
        name = type(node).__name__
        if depth > MAX_DEPTH:
            raise Fault(f"needed at most {MAX_DEPTH} levels of queries; got more; simplify it", start_of(node))
        if name == "Subquery":
            plain_only(node, "this")
            return self.query(node.this, depth + 1)
        if name == "Select":
            kind = stream_of(node.expressions[0]) if len(node.expressions) == 1 else None
            if kind is None:
                return self._block(node)
            node = node.copy()  # SELECT ISTREAM (a, b) FROM ... is ISTREAM of SELECT a, b FROM ...
            node.set("expressions", node.expressions[0].expressions)
            return Streamed(kind, self._block(node), start_of(node) or 0)
        if (kind := stream_of(node)) is not None:
            return self._streamed(kind, node, depth)
        if name == "Values":
            source = self._sources.values(node)
            return Block((SelectItem(Star(None, source.start), None),), (Joined(source),), source.start)
        if name in _OPERATIONS:
            return self._operation(node, depth)
        if name == "Alias" and (word := str(node.this).upper()) in ("ISTREAM", "DSTREAM", "RSTREAM"):
            raise Fault(
                f"needed a query behind {word}; got something else; write {word} (SELECT * FROM s)", start_of(node)
            )
        raise Fault(f"needed a SELECT; got {name.upper()}", start_of(node))

    def _streamed(self, kind: StreamKind, node: Any, depth: int) -> Streamed:
        start = start_of(node) or 0
        if len(node.expressions) == 1 and (inner := stream_of(node.expressions[0])) is not None:
            raise _no_relation(kind, inner, start_of(node.expressions[0]) or start)
        if len(node.expressions) != 1 or type(node.expressions[0]).__name__ not in QUERIES:
            raise Fault(f"needed a query in {kind.upper()} (SELECT ...); got something else", start)
        query = self.query(node.expressions[0], depth + 1)
        if isinstance(query, Streamed):
            raise _no_relation(kind, query.kind, start)
        return Streamed(kind, query, start)

    def _operation(self, node: Any, depth: int) -> Operation:
        plain_only(node, "this", "expression", "distinct", "order", "limit", "offset", "with_", "by_name")
        return Operation(
            _OPERATIONS[type(node).__name__],
            not node.args.get("distinct"),
            self.query(node.this, depth + 1),
            self.query(node.expression, depth + 1),
            start_of(node.expression) or 0,
            bool(node.args.get("by_name")),
            **self._ordering(node),
        )

    def _block(self, node: Any) -> Block:
        node = plain_select(node)
        plain_only(
            node,
            "expressions",
            "from_",
            "joins",
            "where",
            "group",
            "having",
            "qualify",
            "distinct",
            "order",
            "limit",
            "offset",
            "with_",
        )
        start = start_of(node) or 0
        if not node.expressions:
            raise Fault("needed columns after SELECT; got none; write SELECT *", start)
        where, having, qualify = (node.args.get(name) for name in ("where", "having", "qualify"))
        distinct = node.args.get("distinct")
        if distinct is not None:
            plain_only(distinct)
        return Block(
            tuple(self._item(each) for each in node.expressions),
            self._sources.read(node) if node.args.get("from_") is not None else (Joined(self._one_row(node, start)),),
            start,
            where=None if where is None else self._expressions.read(where.this),
            group=self._group(node.args.get("group")),
            having=None if having is None else self._expressions.read(having.this),
            qualify=None if qualify is None else self._expressions.read(qualify.this),
            distinct=distinct is not None,
            **self._ordering(node),
        )

    def _one_row(self, node: Any, start: int) -> Table:
        """What a SELECT without FROM is of."""
        if any(_star(each) is not None for each in node.expressions) or node.args.get("joins"):
            raise Fault("needed FROM and a stream; got a SELECT without", start)
        self._sources.add(1, start)
        rows = listed_rows([[Constant(0, "integer")]], (NO_SOURCE,), start)
        return Table(str(rows), NO_SOURCE, start, listed=rows)

    def _ordering(self, node: Any) -> dict[str, Any]:
        order, limit, offset = (node.args.get(name) for name in ("order", "limit", "offset"))
        if order is not None:
            plain_only(order, "expressions")
        if limit is not None:
            plain_only(limit, "expression")
        if offset is not None:
            plain_only(offset, "expression")
        return {
            "order": () if order is None else tuple(self._ordered(each) for each in order.expressions),
            "limit": None if limit is None else self._count(limit.expression, "LIMIT"),
            "offset": 0 if offset is None else self._count(offset.expression, "OFFSET"),
        }

    def _ordered(self, node: Any) -> Ordered:
        if type(node).__name__ != "Ordered":
            return Ordered(self._expressions.read(node), False, True)
        plain_only(node, "this", "desc", "nulls_first")
        if type(node.this).__name__ == "Var" and str(node.this.this).upper() == "ALL":
            return Ordered(None, bool(node.args.get("desc")), not node.args.get("nulls_first"))
        return Ordered(self._expressions.read(node.this), bool(node.args.get("desc")), not node.args.get("nulls_first"))

    def _count(self, node: Any, clause: str) -> int:
        value = self._expressions.read(node).node
        if not isinstance(value, Constant) or value.kind != "integer" or not 0 <= int(value.value or 0) < 2**62:
            raise Fault(f"needed a whole number of rows after {clause}; got something else", start_of(node))
        assert isinstance(value.value, int)
        return value.value

    def _group(self, node: Any) -> tuple[Expression, ...] | Literal["all"] | GroupingSets | None:
        if node is None:
            return None
        plain_only(node, "expressions", "all")
        if node.args.get("all"):
            return "all"
        if any(type(each).__name__ in GROUPINGS for each in node.expressions):
            return read_sets(node, self._expressions.read)
        return tuple(self._expressions.read(each) for each in node.expressions)

    def _item(self, node: Any) -> SelectItem:
        alias = None
        if type(node).__name__ == "Alias":
            plain_only(node, "this", "alias")
            alias = str(node.args["alias"].this)
            node = node.this
        star = _star(node)
        if star is None:
            return SelectItem(self._expressions.read(node), alias)
        plain_only(star, "except_", "replace", "rename")
        table = node.args.get("table") if type(node).__name__ == "Column" else None
        if alias is not None:
            raise Fault("needed * without a name of its own; got AS", start_of(node))
        for each in (*(star.args.get("replace") or ()), *(star.args.get("rename") or ())):
            if type(each).__name__ != "Alias" or not each.alias:
                raise Fault("needed (... AS name, ...) after REPLACE or RENAME; got something else", start_of(node))
        made = Star(
            None if table is None else str(table.this),
            start_of(node) or 0,
            tuple(_name_of(each) for each in star.args.get("except_") or ()),
            tuple((str(each.alias), self._expressions.read(each.this)) for each in star.args.get("replace") or ()),
            tuple((_name_of(each.this), str(each.alias)) for each in star.args.get("rename") or ()),
        )
        return SelectItem(made, None)

    def fragment(self, begin: int, end: int) -> Expression:
        """The condition in a part of the whole statement."""
        inside = "".join(sign if sign == "\n" else " " for sign in self._whole[:begin]) + self._whole[begin:end]
        if not inside.strip():
            raise Fault("needed a condition after WHERE; got none", begin)
        check_places(self._whole, self._values, begin, end)
        return self._expressions.read(self.parse(inside, exp.Condition))


def _no_relation(kind: str, inner: str, start: int) -> Fault:
    return Fault(
        f"needed a query that gives a relation in {kind.upper()}; got {inner.upper()}, a stream; give it a window in a "
        f"FROM of its own: {kind.upper()} (SELECT * FROM {inner.upper()} (...) AS t [RANGE 60])",
        start,
    )


def _star(node: Any) -> Any:
    """The star of an item that is one."""
    if type(node).__name__ == "Star":
        return node
    if type(node).__name__ == "Column" and type(node.this).__name__ == "Star":
        return node.this
    return None


def _name_of(node: Any) -> str:
    """The name of a column as it stands in EXCLUDE or RENAME.  Raises Fault."""
    named = node.this if type(node).__name__ == "Column" else node
    if type(named).__name__ != "Identifier":
        raise Fault("needed names of columns after * EXCLUDE or RENAME; got something else", start_of(node))
    return str(named.this)
