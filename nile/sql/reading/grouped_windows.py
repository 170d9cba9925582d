"""Flink's older spelling of windows: GROUP BY TUMBLE (ts, size) is GROUP BY the bounds of windows in FROM.

From sqlglot's tree to sqlglot's tree, as in `plainly`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nile.expressions.places import Fault, NotYetFault
from nile.expressions.tokens import start_of
from nile.sql.reading.own_windows import SESSION, STREAM_FUNCTIONS
from nile.summaries.heavy import exp

if TYPE_CHECKING:
    from sqlglot import exp

__all__ = ["grouped_windows"]

_BOUNDS = {"_START": "window_start", "_END": "window_end"}
_WRITTEN = {SESSION: "SESSION"}


def grouped_windows(node: Any) -> Any:
    """A SELECT whose GROUP BY has TUMBLE (ts, size), HOP (ts, slide, size) or SESSION (ts, gap).  Raises Fault."""
    group = node.args.get("group")
    calls = [each for each in (group.expressions if group is not None else ()) if _function(each) in STREAM_FUNCTIONS]
    if not calls:
        return node
    call, name = calls[0], _function(calls[0])
    source: Any = None if node.args.get("from_") is None else node.args["from_"].this
    written = _WRITTEN.get(name, name)
    if len(calls) > 1 or type(source).__name__ != "Table" or type(source.this).__name__ != "Identifier":
        raise Fault(
            f"needed one window over the one stream in FROM for GROUP BY {written} (...); got something else; write "
            f"FROM {written} (stream, ts, ...) GROUP BY window_start",
            start_of(call),
        )
    if node.args.get("joins"):
        raise NotYetFault(
            f"GROUP BY {written} (...) of a join is not there yet; write FROM {written} (stream, ts, ...) in the join "
            "and GROUP BY window_start",
            start_of(call),
        )
    others = [each for each in group.expressions if each is not call]
    keys: list[Any] = []
    if name == SESSION:
        if any(type(each).__name__ != "Column" for each in others):
            raise Fault("needed columns beside SESSION (...) in GROUP BY; got something else", start_of(call))
        keys = [exp.Column(this=each.this.copy()) for each in others]
    time, *spans = call.expressions or [None]
    if type(time).__name__ != "Column":
        raise Fault(f"needed GROUP BY {written} (ts, INTERVAL '1 minute'); got something else", start_of(call))
    stream = exp.Column(this=source.this)
    arguments = [stream, *keys, exp.Column(this=time.this.copy()), *(each.copy() for each in spans)]
    source.set("this", exp.Anonymous(this=call.this, expressions=arguments))
    if source.args.get("alias") is None:
        source.set("alias", exp.TableAlias(this=stream.this.copy()))
    bounds = [_bound(bound, call) for bound in _BOUNDS.values()]
    group.set("expressions", [part for each in group.expressions for part in (bounds if each is call else [each])])
    for each in [each for each in node.find_all(exp.Anonymous) if str(each.this).upper().startswith(f"{written}_")]:
        each.replace(_bound(_of(each, written, call), each))
    return node


def _of(call: Any, name: str, window: Any) -> str:
    """The bound of the group's window that TUMBLE_START (...) and the like stand for."""
    bound = _BOUNDS.get(str(call.this).upper().removeprefix(name))
    if bound is None:
        raise NotYetFault(
            f"{str(call.this).upper()}() is not there yet; take {name}_END, and the time of a row in FROM",
            start_of(call),
        )
    if [each.sql() for each in call.expressions] != [each.sql() for each in window.expressions]:
        raise Fault(
            f"needed {str(call.this).upper()} of the window in GROUP BY; got another one; write both alike",
            start_of(call),
        )
    return bound


def _bound(name: str, near: Any) -> Any:
    column = exp.column(name)
    place = start_of(near)
    if place is not None:
        column.this.update_positions(line=1, col=1, start=place, end=place)
    return column


def _function(node: Any) -> str:
    return str(node.this).upper() if type(node).__name__ == "Anonymous" else ""
