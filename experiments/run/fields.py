"""What the files of experiments share at their edge: tables, kinds of values, and mistakes in the words of the file.

A table is a frozen pydantic model that says, in each field's description, what the field needs; `told` makes one line
for each mistake: file, line, key, what was needed, what came, the nearest known name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated, Any, get_args, get_origin

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo

from nile.experiments.run.toml_lines import line_of
from nile.summaries.errors import ConfigError

__all__ = [
    "Finding",
    "Table",
    "Text",
    "Texts",
    "Value",
    "Values",
    "as_listed",
    "as_written",
    "findings",
    "nearest",
    "one_of",
    "one_of_names",
    "shown",
    "told",
]


def as_listed(value: object) -> object:
    """A list of a file as the tuple that a frozen table holds."""
    return tuple(value) if isinstance(value, list) else value


Text = Annotated[str, Field(min_length=1)]
Texts = Annotated[tuple[Text, ...], BeforeValidator(as_listed)]
Value = str | bool | int | float
Values = Annotated[tuple[Value, ...], BeforeValidator(as_listed)]


class Table(BaseModel):
    """A table of a file: known keys alone, values of exactly their type, unchanged once read."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


@dataclass(frozen=True, slots=True)
class Finding:
    """One mistake: the key it is in, as a path of names and list places, and what to say of it."""

    path: tuple[str | int, ...]
    message: str

    def __str__(self) -> str:
        return f"{as_written(self.path)}: {self.message}" if self.path else self.message


def as_written(path: tuple[str | int, ...]) -> str:
    """A path as a person would write it: `summary.rate`, `budgets[2]`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")


def told(found: Iterable[Finding], where: str, text: str | None) -> str:
    """Mistakes in the order of the file, a line each.  text: the TOML they are in, None for a table from elsewhere."""
    lines = [(text and line_of(text, one.path), one) for one in found]
    return "\n".join(
        f"{where}:{line}: {one}" if line else f"{where}: {one}"
        for line, one in sorted(lines, key=lambda each: (each[0] or 0, str(each[1])))
    )


def findings(error: ValidationError, top: type[BaseModel], given: Mapping[str, Any]) -> list[Finding]:
    """Every mistake of pydantic's in the words of the file.  given: the table that `top` refused."""
    return [_finding(dict(mistake), top, given) for mistake in error.errors(include_url=False)]


# --- kinds of values --------------------------------------------------------------------------------------


def one_of(names: tuple[str, ...]) -> AfterValidator:
    """A check for a field: one of these names, else the nearest is told."""

    def check(value: str) -> str:
        if value not in names:
            raise ConfigError(f"needed {one_of_names(names)}; got {shown(value)}{nearest(value, names)}")
        return value

    return AfterValidator(check)


def one_of_names(names: tuple[str, ...]) -> str:
    """What a field needs that takes one of these names."""
    return f"one of {', '.join(names)}" if len(names) > 1 else names[0]


def nearest(word: str, names: tuple[str, ...]) -> str:
    """What to add to a message on a misspelt name: the known one nearest to it, or nothing."""
    near = get_close_matches(word.lower(), names, n=1, cutoff=0.6)
    return f"; did you mean {near[0]!r}?" if near else ""


def shown(value: object) -> str:
    """A value as it came, cut to a readable length."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple) and not value:
        return "an empty list"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


# --- what went wrong, in the words of the file ------------------------------------------------------------

_UNION = ("str", "bool", "int", "float")
"""What pydantic adds to a path to say which member of a union refused."""


def _finding(mistake: dict[str, Any], top: type[BaseModel], given: Mapping[str, Any]) -> Finding:
    path: tuple[str | int, ...] = tuple(part for part in mistake["loc"] if part not in _UNION)
    if path and isinstance(path[-1], int) and not isinstance(_at(given, path[:-1]), list | tuple):
        path = path[:-1]  # one value stood where a list may stand
    if mistake["type"] == "extra_forbidden":
        return Finding(path, _unknown(str(path[-1]), top, _reached(top, path[:-1])[0]))
    if mistake["type"] == "value_error":
        return Finding(path, str(mistake["ctx"]["error"]))
    field = _reached(top, path)[1]
    needed = field.description if field else "a table"
    if mistake["type"] == "missing":
        return Finding(path, f"needed {needed}; it is missing")
    return Finding(path, f"needed {needed}; got {shown(mistake['input'])}")


def _unknown(name: str, top: type[BaseModel], table: type[BaseModel]) -> str:
    """What to say of a key that its table does not know: the nearest known one, or where it belongs."""
    homes = ["at the top of the file, above the first [table]"] if name in _fields(top) else []
    for other, field in _fields(top).items():
        inner = _inner(field)
        if inner and name in _fields(inner):
            homes.append(f"in [[{other}]]" if get_origin(field.annotation) is tuple else f"in [{other}]")
    if homes:
        return f"needed a known key; got {name!r}, which belongs {' or '.join(homes)}"
    known = tuple(_fields(table))
    return f"needed a known key; got {name!r}" + (nearest(name, known) or f"; known here: {', '.join(known)}")


def _reached(top: type[BaseModel], path: tuple[str | int, ...]) -> tuple[type[BaseModel], FieldInfo | None]:
    """The innermost table on the way along `path`, and the last field passed."""
    table, field = top, None
    for part in path:
        if part in _fields(table):
            field = _fields(table)[str(part)]
            inner = _inner(field)
            if inner is None:
                break
            table = inner
    return table, field


def _fields(table: type[BaseModel]) -> dict[str, FieldInfo]:
    return {field.alias or name: field for name, field in table.model_fields.items()}


def _inner(field: FieldInfo) -> type[BaseModel] | None:
    """The table that a field holds, alone, in a list or by name."""
    for kind in (field.annotation, *get_args(field.annotation)):
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            return kind
    return None


def _at(given: object, path: tuple[str | int, ...]) -> object:
    for part in path:
        given = given.get(part) if isinstance(given, Mapping) else None
    return given
