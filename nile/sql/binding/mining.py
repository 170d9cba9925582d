"""Table functions over a stream in FROM: their columns, under a name that identifies the call."""

from __future__ import annotations

from dataclasses import replace

from nile.expressions.places import Fault, listed
from nile.mining.call import Call, Mined
from nile.sql.binding.scope import find
from nile.sql.catalog import Catalog, Entry
from nile.sql.expression_text import identifier, text_literal
from nile.sql.parsed import Table
from nile.summaries.errors import ConfigError

__all__ = ["mined"]


def mined(source: Table, entry: Entry, catalog: Catalog) -> Entry:
    """What the function around a name gives of it; without one, itself.  Raises Fault."""
    if source.mined is None:
        return entry
    call = replace(source.mined, stream=entry.name)
    if entry.time is None:
        raise Fault(f"needed a stream in {call.function}; got relation '{entry.name}'", source.start)
    if call.library is not None:
        relations = [name for name, each in catalog.entries.items() if not each.is_stream]
        held = find(call.library, relations)
        if len(held) != 1:
            known = listed(relations) if relations else "of which there are none"
            raise Fault(f"needed a stored relation ({known}) as library; got '{call.library}'", source.start)
        call = replace(call, options=tuple({**dict(call.options), "library": held[0]}.items()))
    try:
        return Entry(_name(call), call.schema(entry.schema, entry.time), entry.time)
    except ConfigError as error:
        raise Fault(str(error), source.start) from None


def _name(call: Call) -> Mined:
    """The call as SQL: its names, and the options that are not as usual."""
    parts = [identifier(each) for each in (call.stream, call.value, call.key) if each is not None]
    parts += [
        f"{name} => {text_literal(value) if isinstance(value, str) else repr(value)}" for name, value in call.said()
    ]
    made = Mined(f"{call.function} ({', '.join(parts)})")
    made.call = call
    return made
