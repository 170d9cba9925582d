"""HTML built so that text from data cannot become markup: plain text is escaped, only `Markup` passes as is."""

from __future__ import annotations

import re
from html import escape

__all__ = ["Markup", "element", "joined", "void"]

# Not characters of HTML: controls but tab and line feed, and halves of surrogate pairs.
_FOREIGN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")

Value = str | int | float | bool | None


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def text(value: object) -> Markup:
    """`value` as escaped text; `Markup` unchanged, None as nothing."""
    if isinstance(value, Markup):
        return value
    if value is None:
        return Markup()
    return Markup(escape(_FOREIGN.sub("\N{REPLACEMENT CHARACTER}", str(value)), quote=True))


def joined(*parts: object, by: str = "") -> Markup:
    """The parts in a row, each escaped unless it is Markup."""
    return Markup(text(by).join(text(part) for part in parts))


def element(name: str, /, *children: object, **attributes: Value) -> Markup:
    """<name attributes>children</name>.

    `class_` gives class, other underscores become hyphens; an attribute of None or False is left out, one of
    True has no value.
    """
    return Markup(f"<{name}{_attributes(attributes)}>{joined(*children)}</{name}>")


def void(name: str, /, **attributes: Value) -> Markup:
    """<name attributes>, for the elements of HTML that have no end tag."""
    return Markup(f"<{name}{_attributes(attributes)}>")


def _attributes(attributes: dict[str, Value]) -> str:
    written = []
    for name, value in attributes.items():
        if value is None or value is False:
            continue
        name = name.rstrip("_").replace("_", "-")
        written.append(f" {name}" if value is True else f' {name}="{text(value)}"')
    return "".join(written)
