"""The routes as an OpenAPI document, from which tools generate clients.  Source: OpenAPI 3.1.0."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nile.base.version import __version__

__all__ = ["document"]

Values = dict[str, Any]

_ROWS = ("application/x-ndjson", "application/vnd.apache.arrow.stream", "text/csv")
_OUTPUTS = ("application/x-ndjson", "text/event-stream", "application/vnd.apache.arrow.stream")
_TEXT, _WHOLE, _OBJECT = {"type": "string"}, {"type": "integer"}, {"type": "object"}
_WRONG = {
    "400": "A mistake in the request.", "401": "No token, or a wrong one.", "403": "A page of another origin.",
    "404": "No such stream or query.", "408": "The body came too slowly.", "413": "The body is too large.",
    "421": "A name that this server does not answer to.", "429": "Too many requests or streams.",
    "500": "The server's log says why.", "501": "Not yet.", "503": "Overloaded, or closing.",
}  # fmt: skip


def _object(*needed: str, **properties: Values) -> Values:
    return {"type": "object", "properties": properties, **({"required": list(needed)} if needed else {})}


def _json(schema: Values) -> Values:
    return {"application/json": {"schema": schema}}


_ASKED: Values = {
    "required": True,
    "content": {
        "text/plain": {"schema": _TEXT},
        **_json(_object("sql", sql=_TEXT, params={"oneOf": [{"type": "array"}, _OBJECT]}, options=_OBJECT)),
    },
}
_QUERY = _object(
    query=_TEXT, epoch=_WHOLE, outputs=_WHOLE, unread=_WHOLE, schema={"type": "array"}, streams={"type": "array"},
    readers=_WHOLE, snapshot={"type": "boolean"},
)  # fmt: skip
_PLACE = "EPOCH:ORDINAL of the next output, `start` for the oldest that is kept; none: what is found from now on."


def _call(told: str, answer: Mapping[str, Values] | None = None, status: str = "200", **more: Any) -> Values:
    """One operation.  answer: by media type; more: fields of the operation, and answers of its own under `also`."""
    also = more.pop("also", {})
    done: Values = {"description": told, **({"content": dict(answer)} if answer else {})}
    return {
        "summary": told,
        "responses": {status: done, **also, "default": {"$ref": "#/components/responses/wrong"}},
    } | more


def _rows(kinds: tuple[str, ...]) -> dict[str, Values]:
    return {kind: {"schema": _TEXT} for kind in kinds}


def _asks(name: str, told: str) -> Values:
    return {"name": name, "in": "query", "schema": _TEXT, "description": told}


_OPEN: Values = {"security": []}
_STREAM = _object("name", "schema", "time", name=_TEXT, schema={"type": "array"}, time=_TEXT, lateness={}, where=_TEXT,
                  keep={}, event_id=_TEXT, idle={}, stamp={"type": "boolean"})  # fmt: skip
_PATHS: dict[str, Values] = {
    "/": {"get": _call("The inspector, a page.", {"text/html": {"schema": _TEXT}}, **_OPEN)},
    "/inspector.js": {"get": _call("A part of the page.", {"text/javascript": {"schema": _TEXT}}, **_OPEN)},
    "/inspector.css": {"get": _call("A part of the page.", {"text/css": {"schema": _TEXT}}, **_OPEN)},
    "/openapi.json": {"get": _call("This document.", _json(_OBJECT), **_OPEN)},
    "/health": {"get": _call("Whether it is up.", _json(_object(nile=_TEXT)), **_OPEN)},
    "/ready": {
        "get": _call(
            "Whether it takes requests.", _json(_object(ready={"type": "boolean"})),
            also={"503": {"description": "It goes down."}}, **_OPEN,
        )
    },
    "/metrics": {"get": _call("Counts and sizes for Prometheus.", {"text/plain": {"schema": _TEXT}})},
    "/sql": {"post": _call("The rows of a statement.", _rows(_ROWS), requestBody=_ASKED)},
    "/streams": {
        "get": _call("Names.", _json(_object(streams={"type": "array"}, relations={"type": "array"}))),
        "post": _call(
            "Make a live stream.", _json(_object(stream=_TEXT)), "201",
            requestBody={"required": True, "content": _json(_STREAM)},
        ),
    },
    "/streams/{name}": {
        "get": _call("Columns, offset and accounting.",
                     _json(_object(stream=_TEXT, schema={"type": "array"}, time=_TEXT, accounting=_OBJECT, offset={})))
    },
    "/streams/{name}/rows": {
        "post": _call(
            "Push rows: all of them, or none.", _json(_object(rows=_WHOLE, done=_WHOLE, offset={})),
            requestBody={"required": True, "content": _rows(_ROWS)},
            parameters=[{"name": "Nile-Offset", "in": "header", "schema": _TEXT,
                         "description": "JSON: where the source is after these rows."}],
        )
    },
    "/streams/{name}/advance": {
        "post": _call("No row before this time comes any more.", _json(_object(stream=_TEXT)),
                      requestBody={"required": True, "content": _json(_object("time", time={}))})
    },
    "/advance": {
        "post": _call("To no stream comes a row before this time any more.", _json(_object(streams={"type": "array"})),
                      requestBody={"required": True, "content": _json(_object("time", time={}))})
    },
    "/queries": {"get": _call("Standing queries with a name, and how many outputs of each are kept.", _json(_OBJECT))},
    "/queries/{name}": {
        "get": _call("A standing query.", _json(_QUERY)),
        "put": _call("Ask a standing query; asked again it goes on.", _json(_QUERY), "201", requestBody=_ASKED),
        "delete": _call("End it.", _json(_object(query=_TEXT, outputs=_WHOLE))),
    },
    "/queries/{name}/outputs": {
        "get": _call(
            "Its outputs, without an end.", _rows(_OUTPUTS),
            parameters=[_asks("from", _PLACE), _asks("wait", "Seconds after which it ends when nothing came.")],
            also={"409": {"description": "A place of a query of that name which is no more."}},
        )
    },
    "/queries/{name}/now": {"get": _call("The state of a query that emits snapshots.", _rows(_ROWS))},
    "/queries/{name}/socket": {
        "get": _call("The outputs over a websocket.", None, "101",
                     parameters=[_asks("from", _PLACE), _asks("form", "arrow: binary messages.")])
    },
    "/checkpoint": {"post": _call("Write a checkpoint.", _json(_object(epoch=_WHOLE)))},
}  # fmt: skip


def document() -> Values:
    """The whole of it, as JSON values."""
    paths = {path: {**calls, **({"parameters": [_NAME]} if "{name}" in path else {})} for path, calls in _PATHS.items()}
    error = _object("error", "kind", error=_TEXT, kind=_TEXT)
    told = " ".join(f"{status}: {text}" for status, text in _WRONG.items())
    return {
        "openapi": "3.1.0",
        "info": {"title": "Nile", "version": __version__, "description": "A database of streams over HTTP."},
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "responses": {"wrong": {"description": told, "content": _json(error)}},
        },
    }


_NAME = {"name": "name", "in": "path", "required": True, "schema": _TEXT}
