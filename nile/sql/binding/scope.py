"""Scopes: which column a name means among the streams, relations and subqueries of one FROM."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field

from nile.expressions.places import Fault, listed, nearest
from nile.sql.parsed import NO_SOURCE, Reference, Star
from nile.sql.plan import Field, Plan

__all__ = ["Scope", "ScopeSource", "find", "unique"]


def find(name: str, known: Iterable[str]) -> list[str]:
    """The known names that `name` means: itself, or else those that differ from it in case alone."""
    names = list(known)
    if name in names:
        return [name]
    return [each for each in names if each.lower() == name.lower()]


def unique(name: str, taken: Container[str]) -> str:
    """`name`, or with _1, _2, ... behind where it is taken."""
    candidate, count = name, 0
    while candidate in taken:
        count += 1
        candidate = f"{name}_{count}"
    return candidate


@dataclass(frozen=True, slots=True)
class ScopeSource:
    """One source: its alias, its plan, and its columns by the name that users write.

    twice: names that several of its columns have, which no query can tell apart; share: how much of it SAMPLE takes.
    """

    alias: str
    plan: Plan
    columns: dict[str, Field]
    name: str = ""
    twice: tuple[str, ...] = ()
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class Scope:
    """The sources that names are looked up in.

    merged: columns of JOIN ... USING: name to the first source's; outer: of the query around this one, where names
    that mean nothing here are looked up, if it may refer to it.
    """

    sources: Sequence[ScopeSource]
    merged: dict[str, Field] = field(default_factory=dict)
    outer: Scope | None = None

    @property
    def share(self) -> float:
        """The probability that a combination of the sources is in the samples taken of them."""
        return math.prod(source.share for source in self.sources)

    @property
    def names(self) -> frozenset[str]:
        """What a plan calls the columns of these sources."""
        return frozenset(self.fields)

    @property
    def fields(self) -> dict[str, Field]:
        """The columns of these sources, by what a plan calls them."""
        columns = [field for source in self.sources for field in source.columns.values()]
        return {field.name: field for field in (*columns, *self.merged.values())}

    def source(self, alias: str, start: int) -> ScopeSource:
        """The source that is called so.  Raises Fault."""
        found = find(alias, [source.alias for source in self.sources])
        if len(found) == 1:
            return next(source for source in self.sources if source.alias == found[0])
        aliases = [source.alias for source in self.sources]
        if len(found) > 1:
            raise Fault(f"needed one of {listed(aliases)}; got '{alias}', which is several; write it exactly", start)
        renamed = [source for source in self.sources if source.name.lower() == alias.lower()]
        if renamed:
            raise Fault(f"needed {renamed[0].alias}, as {alias} is called here; got '{alias}'", start)
        near = nearest(alias, aliases)
        hint = f"; did you mean {near}?" if near else "; name it in FROM"
        raise Fault(f"needed one of {listed(aliases)}; got '{alias}'{hint}", start)

    def resolve(self, reference: Reference) -> Field:
        """The column of a reference.  Raises Fault."""
        try:
            return self._resolved(reference)
        except Fault:
            if self.outer is None:
                raise
            try:
                return self.outer.resolve(reference)
            except Fault:
                pass
            raise

    def _resolved(self, reference: Reference) -> Field:
        name, start = reference.name, reference.start
        if reference.qualifier is not None:
            source = self.source(reference.qualifier, start)
            found = find(name, source.columns)
            if len(found) == 1:
                return source.columns[found[0]]
            raise self._unknown(reference, [source], found)
        for fold in (str, str.lower):
            merged = [each for each in self.merged if fold(each) == fold(name)]
            if len(merged) == 1:
                return self.merged[merged[0]]
            hits = [(source, each) for source in self.sources for each in source.columns if fold(each) == fold(name)]
            if len(hits) == 1:
                return hits[0][0].columns[hits[0][1]]
            if hits:
                places = listed(f"{source.alias}.{column}" for source, column in hits)
                raise Fault(
                    f"needed a column of one stream; got '{name}', which is {places}; write one of these", start
                )
        raise self._unknown(reference, self.sources, [])

    def star(self, star: Star) -> list[tuple[str, Field]]:
        """The columns that a * stands for, with the names that users write."""
        sources = self.sources if star.qualifier is None else [self.source(star.qualifier, star.start)]
        for source in sources:
            if source.twice:
                raise Fault(
                    f"needed columns of different names for *; got {listed(source.twice)} more than once in "
                    f"{source.alias}; name the columns that you want, or rename these where they come from",
                    star.start,
                )
        if star.qualifier is not None:
            return list(sources[0].columns.items())
        own = {field.name for source in self.sources for field in source.columns.values()}
        merged = {field.name for field in self.merged.values()}
        both = {name: field for name, field in self.merged.items() if field.name not in own}  # of FULL JOIN
        columns: list[tuple[str, Field]] = []
        for source in self.sources:
            for name, column in source.columns.items():
                if name in both:
                    columns.append((name, both.pop(name)))
                elif name not in self.merged or column.name in merged:
                    columns.append((name, column))
        return columns

    def _unknown(self, reference: Reference, sources: Sequence[ScopeSource], found: list[str]) -> Fault:
        name = reference.name
        if [source.alias for source in sources] == [NO_SOURCE]:
            return Fault(f"needed FROM and a stream to take columns from; got '{name}' without", reference.start)
        shown = " or ".join(f"{source.alias} ({listed(source.columns)})" for source in sources[:3])
        shown += f" or {len(sources) - 3} more" if len(sources) > 3 else ""
        if found:
            return Fault(
                f"needed a column of {shown}; got '{name}', which is several; write it exactly", reference.start
            )
        twice = next((source.alias for source in sources if name in source.twice), None)
        if twice is not None:
            return Fault(
                f"needed one column '{name}' of {twice}; got several of that name; rename the others", reference.start
            )
        near = nearest(name, [column for source in sources for column in source.columns])
        hint = f"; did you mean {near}?" if near else ""
        return Fault(f"needed a column of {shown}; got '{name}'{hint}", reference.start)
