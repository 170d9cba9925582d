"""Plans as data: a bound plan as JSON values that people and programs can change, and back into the SQL that means it.

Every node is an object whose "is" is its kind, with its fields by name; an expression is a piece of SQL over the
columns of the node's input, each between double quotes, such as "a.x" > 2.  What comes in is read as the statement it
stands for, so that nothing runs which could not be asked in SQL: a plan is checked as every statement is.
Source: STREAM (CIDR 2003), section 6: plans in XML that can be written out, changed by hand and run.
"""

from __future__ import annotations

import json
import types
from dataclasses import MISSING, fields, is_dataclass
from functools import lru_cache
from typing import Any, Literal, NoReturn, Union, get_args, get_origin, get_type_hints

from nile.expressions.reading import read_condition
from nile.expressions.tree import Node
from nile.mining.call import Mined
from nile.sql.expression_text import expression_text
from nile.sql.plan import Query, leaves_of
from nile.sql.text import query_text
from nile.summaries.errors import ConfigError, ExpressionError
from nile.summaries.heavy import pa

__all__ = ["is_plan", "plan_values", "sql_of_plan"]

_LONGEST = 1 << 18  # characters of a plan
_EXPRESSIONS = frozenset(get_args(Node))
_PLAIN = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}


def is_plan(text: str) -> bool:
    """Whether a statement is a plan: no statement of SQL begins like an object of JSON."""
    return isinstance(text, str) and text.lstrip()[:1] == "{"


def plan_values(query: Query) -> dict[str, Any] | None:
    """A plan as JSON values; None of one that reads a table function, which SQL alone can say."""
    if any(isinstance(leaf.name, Mined) for leaf in leaves_of(query.plan)):
        return None
    values: dict[str, Any] = _written(query)
    return values


def sql_of_plan(text: str) -> str:
    """The statement that a plan in JSON stands for.  Raises ConfigError, which names the place in the plan."""
    if len(text) > _LONGEST:
        raise ConfigError(f"plan: needed at most {_LONGEST:,} characters; got {len(text):,}; ask in SQL")
    try:
        query = _read(json.loads(text), Query, "plan")
        return query_text(query)
    except ValueError as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"plan: needed JSON; got other text ({error}); take it from EXPLAIN (FORMAT JSON)") from None
    except RecursionError:
        raise ConfigError("plan: needed one of bearable depth; got one that is nested deeper; simplify it") from None
    except (KeyError, AssertionError, AttributeError, IndexError) as error:
        told = f"no column {error.args[0]!r}" if isinstance(error, KeyError) and error.args else "other nodes"
        raise ConfigError(
            f"plan: needed nodes that stand on each other as in a statement, and columns of their inputs; got {told}; "
            "compare it with EXPLAIN (FORMAT JSON)"
        ) from None


def _written(value: Any) -> Any:
    if isinstance(value, Node):
        return expression_text(value, lambda name: '"' + name.replace('"', '""') + '"')
    if is_dataclass(value):
        told = {"is": type(value).__name__}
        for each in fields(value):
            held = getattr(value, each.name)
            if each.default is MISSING or held != each.default:
                told[each.name] = _written(held)
        return told
    if isinstance(value, tuple):
        return [_written(each) for each in value]
    return str(value) if isinstance(value, pa.DataType) else value


@lru_cache(maxsize=64)
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _read(value: Any, hint: Any, place: str) -> Any:
    """A value of a type, with all that is in it.  Raises ConfigError."""
    if hint is pa.DataType:
        return pa.null()  # the statement tells it anew
    if get_origin(hint) in (Union, types.UnionType):
        return _one_of(value, get_args(hint), place)
    if _is_expression(hint):
        return _expression(value, place)
    if get_origin(hint) is Literal:
        if value not in get_args(hint) or isinstance(value, list | dict):
            _refuse(place, f"one of {', '.join(map(str, get_args(hint)))}", value)
        return value
    if get_origin(hint) is tuple:
        return _tuple(value, get_args(hint), place)
    if is_dataclass(hint):
        return _object(value, hint, place)
    plain = {int: int, float: int | float, str: str, bool: bool, types.NoneType: types.NoneType}[hint]
    if not isinstance(value, plain) or (isinstance(value, bool) and hint is not bool):
        _refuse(place, _PLAIN.get(hint, "null"), value)
    return value


def _is_expression(hint: Any) -> bool:
    return hint in _EXPRESSIONS


def _one_of(value: Any, hints: tuple[Any, ...], place: str) -> Any:
    """A value of the first type among several that it can be."""
    if value is None and types.NoneType in hints:
        return None
    if any(map(_is_expression, hints)):
        return _expression(value, place)
    named = [each for each in hints if is_dataclass(each)]
    if isinstance(value, dict) and named:
        known: dict[str, Any] = {_named(each): each for each in named}
        if value.get("is") not in known:
            _refuse(f"{place}.is", f"one of {', '.join(known)}", value.get("is"))
        return _object(value, known[value["is"]], place)
    others = [each for each in hints if not is_dataclass(each) and each is not types.NoneType]
    for at, each in enumerate(others):
        try:
            return _read(value, each, place)
        except ConfigError:
            if at == len(others) - 1:
                raise
    return _refuse(place, f"one of {', '.join(_named(each) for each in named)}", value)


def _named(kind: Any) -> str:
    return str(kind.__name__)


def _object(value: Any, kind: Any, place: str) -> Any:
    if not isinstance(value, dict) or value.get("is", kind.__name__) != kind.__name__:
        _refuse(place, f"an object, {kind.__name__}", value.get("is") if isinstance(value, dict) else value)
    known = {each.name: each for each in fields(kind)}
    if strange := [name for name in value if name not in known and name != "is"]:
        _refuse(place, f"fields among {', '.join(known)}", strange[0])
    missing = [name for name, each in known.items() if each.default is MISSING and name not in value]
    if missing:
        _refuse(place, f"{kind.__name__} with {', '.join(missing)}", "none")
    hints = _hints(kind)
    return kind(**{name: _read(value[name], hints[name], f"{place}.{name}") for name in known if name in value})


def _tuple(value: Any, kinds: tuple[Any, ...], place: str) -> tuple[Any, ...]:
    several = len(kinds) == 2 and kinds[1] is Ellipsis
    if not isinstance(value, list) or not (several or len(value) == len(kinds)):
        _refuse(place, "a list" if several else f"a list of {len(kinds)}", value)
    each = [kinds[0]] * len(value) if several else kinds
    return tuple(_read(one, kind, f"{place}[{at}]") for at, (one, kind) in enumerate(zip(value, each, strict=True)))


def _expression(value: Any, place: str) -> Any:
    if not isinstance(value, str):
        _refuse(place, 'an expression in SQL, such as "a.x" > 2', value)
    try:
        return read_condition(value, where=place)
    except ExpressionError as error:
        raise ConfigError(str(error)) from None


def _refuse(place: str, needed: str, got: Any) -> NoReturn:
    raise ConfigError(
        f"{place}: needed {needed}; got {got if isinstance(got, str) else json.dumps(got)[:60]}; change it"
    )
