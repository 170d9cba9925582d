"""A SELECT with Nile's clauses to a bound query: split, parse, bind, and look whether the clauses go together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count

from nile.expressions.places import Fault, NotYetFault, Parameter, listed
from nile.expressions.tokens import Token
from nile.sql import plan as ops
from nile.sql.binding.attribute_terms import Reading, attribute_term, factor_of
from nile.sql.binding.binder import BoundBlock, QueryBinder
from nile.sql.binding.scope import Scope
from nile.sql.catalog import Catalog
from nile.sql.parameters import put_zeros
from nile.sql.parsed import Reference
from nile.sql.plan import Plan, Query, Stream, inputs_of, leaves_of, map_inputs, walk, with_inputs
from nile.sql.reading.clauses import Clauses, split_clauses
from nile.sql.reading.selecting import read_select
from nile.sql.reading.terms import TermClause
from nile.sql.reading.views import Views

__all__ = ["QUERY_WORDS", "read_query"]

QUERY_WORDS = ("SELECT", "VALUES", "(", "FROM", "WITH", "ISTREAM", "DSTREAM", "RSTREAM")
"""What a query begins with."""


def read_query(
    text: str,
    tokens: Sequence[Token],
    catalog: Catalog,
    values: Mapping[int, Parameter],
    making: str | None = None,
) -> Query:
    """The bound query of a statement, not rewritten.  tokens: of the SELECT alone.  Raises Fault.

    making: the name of the view that it is to be: then it may have no clauses.
    """
    views = Views(catalog, len(text), making)
    try:
        return _read(text, tokens, catalog, values, views, making is not None)
    except Fault as fault:
        raise views.placed(fault) from None


def _read(
    text: str,
    tokens: Sequence[Token],
    catalog: Catalog,
    values: Mapping[int, Parameter],
    views: Views,
    plain: bool,
) -> Query:
    whole = put_zeros(text, tokens, values)
    clauses, rest = split_clauses(tokens, whole, values)
    if plain and clauses.begins:
        word, start = min(clauses.begins.items(), key=lambda each: each[1])
        raise Fault(
            f"needed a query without {word} in a view; got it; write a window in brackets behind each stream, and the "
            "rest in the query that reads the view",
            start,
        )
    begin, end = tokens[0].start, tokens[-1].end
    blank = "".join(sign if sign == "\n" else " " for sign in text[:begin])
    written = read_select(blank + rest[begin:end], values, clauses, whole, views)
    binder = QueryBinder(catalog, clauses.window, closing=clauses.emit == "close")
    bound = binder.bind(written)
    bound = replace(bound, plan=_numbered(bound.plan, count()))
    _check(clauses, bound, binder)
    plan = _with_pairs(bound, clauses) if clauses.pairs else bound.plan
    if clauses.emit is not None:
        plan = _emitting(plan, clauses)
    return Query(
        plan,
        window=clauses.window,
        windowed=binder.sources.windowed or bool(clauses.pairs),
        preference=_preference(clauses, bound, Reading(whole, values, catalog)),
        budget=clauses.budget,
        error=clauses.error,
        emit=None if clauses.emit == "close" else clauses.emit,
    )


def _numbered(plan: Plan, places: Iterator[int]) -> Plan:
    """The streams numbered from left to right, which is how the text of the plan names them."""
    plan = with_inputs(plan, [_numbered(each, places) for each in inputs_of(plan)])
    return replace(plan, position=next(places)) if isinstance(plan, Stream | ops.Windowed) else plan


def _emitting(plan: Plan, clauses: Clauses) -> Plan:
    """The plan with what EMIT says at its top."""
    start = clauses.begins["EMIT"]
    if isinstance(plan, ops.ToStream):
        raise Fault(f"needed either {plan.kind.upper()} or EMIT; got both; a stream is told as it comes", start)
    if clauses.preference is not None or clauses.budget is not None or clauses.error is not None:
        raise Fault("needed an exact query for EMIT; got one that is told as it is found; leave it out", start)
    if clauses.every is not None:
        return ops.Every(plan, clauses.every)
    if clauses.emit != "close":
        return plan
    hops = [each for each in walk(plan) if isinstance(each, ops.Hop)]
    if not hops or any(isinstance(leaf, Stream) and leaf.window is not None for leaf in leaves_of(plan)):
        raise Fault(
            "needed TUMBLE or HOP over streams without another window for EMIT ON WINDOW CLOSE; got something else",
            start,
        )
    if plan.fields[-1].name != "_close":
        raise Fault("needed one SELECT for EMIT ON WINDOW CLOSE; got a set operation; name it in FROM", start)
    return ops.OnClose(_closing(plan), "_close", max(each.size + each.slide for each in hops))


def _closing(plan: Plan) -> Plan:
    """The plan with windows that close."""
    plan = map_inputs(plan, _closing)
    return replace(plan, closes=True) if isinstance(plan, ops.Hop) else plan


def _check(clauses: Clauses, bound: BoundBlock, binder: QueryBinder) -> None:
    """Whether the clauses go with each other and with the query."""
    begins = clauses.begins
    if "DWINDOW" in begins and "WINDOW" in begins:
        raise Fault("needed WINDOW or DWINDOW; got both; a join is directed or not", begins["DWINDOW"])
    if clauses.fade is not None and clauses.preference is None:
        raise Fault(
            "needed WITH PREFERENCE with FADE FACTOR; got none; an exact query has nothing to fade",
            begins["FADE FACTOR"],
        )
    if clauses.budget is not None and clauses.preference is None and not bound.aggregates:
        raise Fault(
            "needed WITH PREFERENCE or an aggregate with BUDGET; got neither; such a query is exact and has nothing "
            "to save",
            begins["BUDGET"],
        )
    if clauses.preference is not None:
        start = begins["WITH PREFERENCE"]
        if bound.scope is None:
            raise Fault(
                "needed one SELECT for WITH PREFERENCE; got a set operation, which is exact; leave it out", start
            )
        if not binder.sources.streams:
            raise Fault("needed a stream for WITH PREFERENCE; got stored relations alone; leave it out", start)
    if clauses.error is not None and not bound.aggregates:
        raise Fault(
            "needed an aggregate, such as sum(price), for ERROR; got a query without; leave it out", begins["ERROR"]
        )
    if clauses.window is not None and not binder.sources.streams:
        raise Fault(
            "needed a stream for WINDOW; got stored relations alone; leave it out, or register a stream of them: "
            "db.register('name', 'file.parquet', time='column')",
            begins["WINDOW"],
        )
    if clauses.window is not None and binder.sources.own_windows == binder.sources.streams:
        raise Fault(
            "needed a stream without a window of its own for WINDOW; got none; leave it out, or the brackets",
            begins["WINDOW"],
        )


def _preference(clauses: Clauses, bound: BoundBlock, reading: Reading) -> ops.Preference | None:
    if clauses.preference is None:
        return None
    assert bound.scope is not None
    terms = []
    for clause in clauses.terms:
        term = attribute_term(clause, bound.scope, reading) if clause.parts else _term(clause, bound.scope)
        if clause.factor is not None:
            term = replace(term, factor=factor_of(clause, bound.scope, reading))
        if term in terms:
            raise Fault("needed each column once in WITH PREFERENCE; got it again; leave one out", clause.start)
        terms.append(term)
    fade = 1.0 if clauses.fade is None else clauses.fade
    return ops.Preference(clauses.preference, tuple(terms), fade)


def _term(clause: TermClause, scope: Scope) -> ops.Term:
    field = scope.resolve(Reference(clause.qualifier, clause.name, clause.start))
    source = next(source for source in scope.sources if field in source.columns.values())
    if isinstance(source.plan, ops.Project | ops.Windowed | ops.Hop) or field not in source.plan.fields:
        raise NotYetFault(
            f"a preference on '{source.alias}', which is a query, is not there yet; name a stream's column",
            clause.start,
        )
    if not isinstance(source.plan, Stream):
        raise Fault(
            f"needed a column of a stream in WITH PREFERENCE; got {field.name}, of a stored relation", clause.start
        )
    return ops.Term(field.name, clause.by)


def _with_pairs(bound: BoundBlock, clauses: Clauses) -> Plan:
    """The plan with pairwise windows on its join."""
    word = "DWINDOW" if clauses.directed else "WINDOW"
    start = clauses.begins[word]
    if bound.scope is None or len(bound.scope.sources) < 2:
        raise Fault(f"needed a join for {word} (a, b); got none; write WINDOW w", start)
    if any(isinstance(each, ops.Outer) for each in walk(bound.plan)):
        raise Fault(
            f"needed inner joins for {word} (a, b); got an outer join, or EXISTS, IN, ANY or ALL; write WINDOW w, or a "
            "window of its own behind each stream",
            start,
        )
    constraints: list[ops.Constraint] = []
    for pair in clauses.pairs:
        left, right = (_place(alias, bound.scope, pair.start, word) for alias in (pair.left, pair.right))
        if left == right:
            raise Fault(f"needed two streams in {word} (a, b); got '{pair.left}' twice", pair.start)
        if any({left, right} == {each.left, each.right} for each in constraints):
            raise Fault(
                f"needed one window for a pair; got ({pair.left}, {pair.right}) again; leave one out", pair.start
            )
        constraints.append(ops.Constraint(left, right, pair.window))
    _check_connected(constraints, bound.scope, start, word)
    if clauses.directed:
        _check_path(constraints, start)
    return _on_join(bound.plan, tuple(constraints), clauses.directed)


def _place(alias: str, scope: Scope, start: int, word: str) -> int:
    source = scope.source(alias, start)
    stream = source.plan
    while isinstance(stream, ops.Project | ops.Filter):
        stream = stream.input
    if not isinstance(stream, Stream):
        raise Fault(f"needed a stream in {word} (a, b); got '{source.alias}', which is none", start)
    if stream.window is not None:
        raise Fault(f"needed either {word} (a, b) or a window of {source.alias}'s own; got both; leave one out", start)
    return next(at for at, each in enumerate(scope.sources) if each is source)


def _check_connected(constraints: Sequence[ops.Constraint], scope: Scope, start: int, word: str) -> None:
    """The windows must hang together, so that every two streams are bound."""
    reached = {constraints[0].left}
    for _ in constraints:
        for each in constraints:
            if each.left in reached or each.right in reached:
                reached |= {each.left, each.right}
    apart = [source.alias for at, source in enumerate(scope.sources) if at not in reached and _has_stream(source.plan)]
    if apart:
        raise Fault(
            f"needed windows that bind every stream; got none that leads to {listed(apart)}; add {word} "
            f"({scope.sources[constraints[0].left].alias}, {apart[0]}) = w",
            start,
        )


def _has_stream(plan: Plan) -> bool:
    return any(isinstance(leaf, Stream) for leaf in leaves_of(plan))


def _check_path(constraints: Sequence[ops.Constraint], start: int) -> None:
    """DWINDOW needs a path: each stream in at most two constraints, one fewer constraints than streams."""
    places = [place for each in constraints for place in (each.left, each.right)]
    if max(map(places.count, places)) > 2 or len(constraints) != len(set(places)) - 1:
        raise Fault("needed DWINDOWs along one path, such as (a, b) and (b, c); got others", start)
    if len({each.left for each in constraints}) < len(constraints):
        raise Fault("needed DWINDOWs in one direction, such as (a, b) and (b, c); got others", start)


def _on_join(plan: Plan, constraints: tuple[ops.Constraint, ...], directed: bool) -> Plan:
    """The constraints on the join of the outermost FROM."""
    if isinstance(plan, ops.Join):
        return replace(plan, constraints=constraints, given=len(constraints), directed=directed)
    return map_inputs(plan, lambda below: _on_join(below, constraints, directed))
