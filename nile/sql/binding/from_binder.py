"""Binding FROM: the sources of a SELECT, how they are joined, and what their names mean."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from nile.expressions.places import Fault, NotYetFault, listed, nearest
from nile.expressions.tree import Call, Node, conjuncts
from nile.sql import plan as ops
from nile.sql.binding.expression_binder import ExpressionBinder, told_apart, type_of
from nile.sql.binding.inputs import Inputs, column_of, common, moved_names, using
from nile.sql.binding.mining import mined
from nile.sql.binding.scope import Scope, ScopeSource, find, unique
from nile.sql.binding.unnesting import unnested
from nile.sql.catalog import Catalog, Entry
from nile.sql.files import own_alias
from nile.sql.parsed import Block, Derived, HopCall, Joined, JoinKind, Reference, Source, Table, Unnested, Written
from nile.sql.plan import Field, Plan, Stream

__all__ = ["FromBinder"]

MAX_LEAVES = 256
"""Streams and relations of one statement: queries that WITH names are bound anew wherever they are named."""


class FromBinder:
    """Binds the FROMs of one statement.

    window: that of every stream without one of its own; bind: gives a query in FROM, and which share
    of the whole its rows are.  streams, own_windows: how
    many there were, and with a window of their own; windowed: whether any window was named.  Raises Fault.
    """

    def __init__(
        self, catalog: Catalog, window: ops.StreamWindow, bind: Callable[[Written], tuple[Plan, float]]
    ) -> None:
        self._catalog = catalog
        self._window = window
        self._bind = bind
        self.streams = 0
        self.own_windows = 0
        self.windowed = window is not None
        self._leaves = 0
        self._taken: set[str] = set()
        self._times: set[str] = set()

    def sources(self, block: Block) -> tuple[Scope, Inputs]:
        """The sources of a SELECT."""
        known: list[ScopeSource] = []
        merged: dict[str, Field] = {}
        inputs = Inputs()
        for joined in block.sources:
            if isinstance(joined.source, Unnested):
                unnested(joined, known, inputs, merged, lambda table: self._source(table).plan, self.derived)
                self._check_name(known[-1], known[:-1], joined.source.start)
                continue
            source = self._source(joined.source)
            self._check_name(source, known, joined.source.start)
            before = Scope(tuple(known), dict(merged))
            as_of = joined.source.as_of if isinstance(joined.source, Table) else None
            window = None if as_of is None else self._as_of_now(joined, as_of, before, source, inputs)
            known.append(source)
            if joined.natural:
                joined = replace(joined, using=common(before, source, joined.start))
            self._join(joined, before, source, inputs, merged, Scope(tuple(known), merged))
            if window is not None:
                self._looked_up(window, known, inputs, merged, joined.start)
            if joined.kind in ("semi", "anti"):
                known.pop()
            elif joined.kind == "full" and joined.using:
                self._coalesced(joined, before, known, inputs, merged)
        return Scope(tuple(known), merged), inputs

    @staticmethod
    def _check_name(source: ScopeSource, known: Sequence[ScopeSource], start: int) -> None:
        if "." in source.alias or not source.alias:
            raise Fault(f"needed an alias without a dot; got '{source.alias}'", start)
        if any(source.alias.lower() == other.alias.lower() for other in known):
            raise Fault(
                f"needed another name for each stream; got '{source.alias}' twice; write "
                f"{source.name or source.alias} AS other",
                start,
            )

    def _join(
        self, joined: Joined, before: Scope, source: ScopeSource, inputs: Inputs, merged: dict[str, Field], scope: Scope
    ) -> None:
        kind: JoinKind = joined.kind
        inner = kind in ("comma", "inner")
        if not inner and scope.share != 1.0:
            raise NotYetFault("a sample with an outer join is not there yet; leave SAMPLE out", joined.start)
        equal = inputs.equal if inner else []
        for reference in joined.using:
            merged |= using(reference, before, source, equal, keep_right=kind == "right")
        conditions: list[Node] = []
        if joined.on is not None:
            conditions += conjuncts(ExpressionBinder(scope, joined.on, None).condition("ON"))
        if kind == "comma" or kind == "inner":
            inputs.add(source.plan, comma=kind == "comma")
            inputs.conditions += conditions
        else:
            inputs.outer(kind, source.plan, equal, conditions, joined.start)

    def _coalesced(
        self, joined: Joined, before: Scope, known: list[ScopeSource], inputs: Inputs, merged: dict[str, Field]
    ) -> None:
        """FULL JOIN ... USING (name): the name alone is whichever side has it, as a column of the joined rows."""
        join, right = inputs.plans[-1], Scope((known[-1],))
        items = [ops.Item(Field(f"c{at}", field.type), column_of(field)) for at, field in enumerate(join.fields)]
        renamed = {field.name: item.name for field, item in zip(join.fields, items, strict=True)}
        both = {}
        for reference in joined.using:
            pair = [column_of(scope.resolve(reference)) for scope in (before, right)]
            if pair[0].kind == "other":
                raise NotYetFault(
                    f"FULL JOIN ... USING of values such as {reference.name} is not there yet; write ON",
                    reference.start,
                )
            node = Call("coalesce", tuple(pair), pair[0].kind)
            types = [scope.resolve(reference).type for scope in (before, right)]
            kind = types[0] if types[0] == types[1] else type_of(node, {field.name: field for field in join.fields})
            both[reference.name] = f"c{len(items)}"
            items.append(ops.Item(Field(both[reference.name], kind), node))
        source = self.derived("_using", ops.Project(join, tuple(items)))
        inputs.plans[-1] = source.plan
        moved_names({old: source.columns[new] for old, new in renamed.items()}, known, merged)
        for name in list(merged):
            merged[name] = next((source.columns[c] for n, c in both.items() if n.lower() == name.lower()), merged[name])

    def _as_of_now(
        self, joined: Joined, as_of: Reference, before: Scope, source: ScopeSource, inputs: Inputs
    ) -> tuple[ops.StreamWindow]:
        """The stream that looks a relation up is, in `inputs`, at its own instant alone; the window that it had."""
        if not isinstance(source.plan, ops.Relation):
            raise Fault(f"needed a stored relation before FOR SYSTEM_TIME; got '{source.alias}'", joined.source.start)
        if joined.kind not in ("inner", "left"):
            raise Fault("needed JOIN or LEFT JOIN ... ON before FOR SYSTEM_TIME; got another join", joined.source.start)
        name = before.resolve(as_of).name
        group = inputs.group
        if len(group) != 1 or name not in self._times or name not in {field.name for field in group[0].fields}:
            raise Fault(
                "needed FOR SYSTEM_TIME AS OF the time of the one stream on the left; got something else; write o JOIN "
                "r FOR SYSTEM_TIME AS OF o.ts ON ...",
                as_of.start,
            )
        plan = group[0]
        if isinstance(plan, Stream):
            window = None if plan.window == self._window else plan.window
            inputs.plans[-1] = replace(plan, window=0)
            return (window,)
        assert isinstance(plan, ops.Project)  # of the lookup before
        assert isinstance(plan.input, ops.Windowed)
        inputs.plans[-1] = replace(plan, input=replace(plan.input, window=0))
        return (plan.input.window,)

    def _looked_up(
        self, window: tuple[ops.StreamWindow], known: list[ScopeSource], inputs: Inputs, merged: dict[str, Field],
        start: int,
    ) -> None:  # fmt: skip
        """What a stream found in a relation at its own instants: a stream, which later changes leave alone."""
        join = inputs.joined(start)
        items = tuple(ops.Item(Field(f"c{at}", field.type), column_of(field)) for at, field in enumerate(join.fields))
        position, self.streams = self.streams, self.streams + 1
        self.own_windows += 2  # of the stream, and of what it gives
        self.windowed = True
        plan = ops.Windowed(ops.ToStream("istream", ops.Project(join, items)), window[0], position)
        source = self.derived("_lookup", plan)
        inputs.plans.append(source.plan)
        moved = {field.name: source.columns[item.name] for field, item in zip(join.fields, items, strict=True)}
        self._times |= {moved[name].name for name in self._times & moved.keys()}
        moved_names(moved, known, merged)

    def _source(self, source: Source) -> ScopeSource:
        if isinstance(source, Derived):
            plan, share = self._bind(source.query)
            made = self.derived(source.alias, self._windowed(plan, source), source.columns, source.start)
            return replace(made, share=share * (1.0 if source.sample is None else source.sample.share))
        assert isinstance(source, Table)
        self._leaves += 1
        if self._leaves > MAX_LEAVES:
            raise Fault(
                f"needed at most {MAX_LEAVES} streams and relations once every query of WITH is written out; got more",
                source.start,
            )
        entry = self._entry(source)
        called = source.alias or own_alias(entry.name)
        alias = self.own_name(called)
        columns = {
            field.name: Field(f"{alias}.{field.name}", field.type)
            for field in entry.schema
            if entry.schema.names.count(field.name) == 1
        }
        fields = tuple(columns.values())
        twice = tuple(dict.fromkeys(field.name for field in entry.schema if field.name not in columns))
        if not entry.is_stream:
            if source.sample is not None:
                raise Fault(f"needed a stream before SAMPLE; got relation '{entry.name}'", source.sample.start)
            if source.hop is not None:
                raise Fault(f"needed a stream in TUMBLE or HOP; got relation '{entry.name}'", source.start)
            if source.own is not None:
                raise Fault(
                    f"needed a stream before a window; got relation '{entry.name}', whose rows are valid at all times",
                    source.own.start,
                )
            relation = ops.Relation(entry.name, alias, fields, changes=entry.changes)
            return ScopeSource(called, relation, columns, entry.name, twice)
        assert entry.time is not None
        position, self.streams = self.streams, self.streams + 1
        window: ops.StreamWindow = self._window
        where = None
        if source.own is not None:
            window = source.own.window
            self.own_windows += 1
            self.windowed = self.windowed or window is not None
            scope = Scope((ScopeSource(called, ops.Relation(entry.name, alias, fields), columns, entry.name),))
            if isinstance(window, ops.Rows) and window.by:
                parts = [scope.resolve(Reference(None, name, source.own.start)) for name in window.by]
                for part in parts:
                    told_apart(column_of(part), part.type, "PARTITION BY", source.own.start)
                window = ops.Rows(window.count, tuple(dict.fromkeys(part.name for part in parts)))
            if source.where is not None:
                where = ExpressionBinder(scope, source.where, None).condition("WHERE")
        stream = Stream(entry.name, alias, position, fields, entry.time, window, where)
        self._times.add(f"{alias}.{entry.time}")
        if source.sample is not None:
            stream = replace(stream, window=None)
            sampled = ops.Sample(ops.ToStream("istream", stream), source.sample.share, source.sample.seed)
            plan = ops.Windowed(sampled, window, self.streams)
            self.streams += 1
            self.own_windows += 1
            return ScopeSource(called, plan, columns, entry.name, twice, source.sample.share)
        if source.hop is not None:
            return self._hopping(source.hop, ScopeSource(called, stream, columns, entry.name, twice), stream)
        return ScopeSource(called, stream, columns, entry.name, twice)

    def _hopping(self, hop: HopCall, source: ScopeSource, stream: Stream) -> ScopeSource:
        """A stream inside of TUMBLE or HOP: its columns, and the bounds of the windows."""
        time = Scope((source,)).resolve(Reference(None, hop.time, hop.start))
        if time.name != f"{stream.alias}.{stream.time}":
            raise Fault(
                f"needed {stream.time}, the time of '{source.name}', in TUMBLE or HOP; got {hop.time}", hop.start
            )
        bounds = ("window_start", "window_end")
        taken = [name for name in bounds if name in source.columns]
        if taken:
            raise Fault(
                f"needed a stream without a column {listed(taken)} in TUMBLE or HOP; got one; rename it", hop.start
            )
        names = (f"{stream.alias}.{bounds[0]}", f"{stream.alias}.{bounds[1]}")
        plan = ops.Hop(stream, time.name, hop.size, hop.slide, names)
        columns = source.columns | dict(zip(bounds, plan.fields[-2:], strict=True))
        return replace(source, plan=plan, columns=columns)

    def _windowed(self, plan: Plan, source: Derived) -> Plan:
        """A query in FROM: where it has a window of its own, the stream that it gives (by default ISTREAM) in it."""
        if source.own is None and source.sample is None and not isinstance(plan, ops.ToStream):
            return plan
        stream: ops.ToStream | ops.Sample = plan if isinstance(plan, ops.ToStream) else ops.ToStream("istream", plan)
        window = None if source.own is None else source.own.window
        if isinstance(window, ops.Rows) and window.by:
            own = Scope((ScopeSource("", plan, {field.name: field for field in plan.fields}),))
            names = tuple(own.resolve(Reference(None, name, source.start)).name for name in window.by)
            window = ops.Rows(window.count, names)
        if source.sample is not None:
            assert isinstance(stream, ops.ToStream)
            stream = ops.Sample(stream, source.sample.share, source.sample.seed)
        position, self.streams = self.streams, self.streams + 1
        self.own_windows += 1
        self.windowed = self.windowed or window is not None
        return ops.Windowed(stream, window, position)

    def own_name(self, called: str) -> str:
        """What a plan calls an input: as the statement does, with _1, _2 ... behind where another block does too.

        Runs tell leaves apart by it, and columns of different blocks can meet in one join.
        """
        name = unique(called, self._taken)
        self._taken.add(name)
        return name

    def _entry(self, source: Table) -> Entry:
        if source.listed is not None:
            return Entry(source.listed, source.listed.schema, None)
        entries = self._catalog.entries
        found = find(source.name, entries)
        if len(found) == 1:
            return mined(source, entries[found[0]], self._catalog)
        if found:
            raise Fault(
                f"needed a stream; got '{source.name}', which is {listed(found)}; write it exactly", source.start
            )
        names = [*entries, *self._catalog.views]
        near = nearest(source.name, names)
        hint = f"; did you mean {near}?" if near else ""
        if any(sign in source.name for sign in "./\\*"):
            hint = f"; a file gets its name with CREATE STREAM name FROM '{source.name[:80]}'"
        elif not near:
            hint = f"; register it first: db.register('{source.name[:80]}', ...), or name a file: FROM 'sales.parquet'"
        known = f" ({listed(names)})" if names else ", of which there are none"
        raise Fault(f"needed a stream or relation{known}; got '{source.name[:80]}'{hint}", source.start)

    def derived(self, called: str, plan: Plan, names: Sequence[str] = (), start: int = 0) -> ScopeSource:
        """A query as a source, its columns under the name that it is called by."""
        if len(names) > len(plan.fields):
            raise Fault(
                f"needed at most {len(plan.fields)} names for the columns of '{called}'; got {len(names)}", start
            )
        own = self.own_name(called)
        shown = [*names, *(field.name for field in plan.fields[len(names) :])]
        if len(set(shown)) < len(shown):
            raise Fault(f"needed columns of different names in '{called}'; got {listed(shown)}; rename one", start)
        columns = {name: Field(f"{own}.{name}", field.type) for name, field in zip(shown, plan.fields, strict=True)}
        items = tuple(
            ops.Item(column, column_of(field)) for field, column in zip(plan.fields, columns.values(), strict=True)
        )
        return ScopeSource(called, ops.Project(plan, items), columns)
