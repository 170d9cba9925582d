"""The server's routes: what each takes and returns.  docs/server.md lists them for users."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import ASGIApp

from nile.base.version import __version__
from nile.engine.database import Database
from nile.execution.live.exact_subscription import ExactSubscription
from nile.execution.live.subscription import Subscription
from nile.server.client_errors import Telling
from nile.server.forms import form_of, read_rows
from nile.server.guard import BodyRefused, Guard
from nile.server.metrics import exposed
from nile.server.openapi import document
from nile.server.requests import read_asked, read_json, read_schema, read_wait
from nile.server.service import Service
from nile.server.settings import Settings
from nile.server.streaming import Found, answered, followed, over_websocket
from nile.summaries.errors import ConfigError, UnknownStream
from nile.summaries.schemas import schema_to_json

__all__ = ["application"]

Handler = Callable[[Service, Request], Awaitable[Response]]
_PAGES = Path(__file__).with_name("page")
_PAGE = {
    "/": ("index.html", "text/html"),
    "/inspector.js": ("inspector.js", "text/javascript"),
    "/inspector.css": ("inspector.css", "text/css"),
}
_PAGE_HEADERS = {
    "cache-control": "no-cache",
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
_STREAM_KEYS = ("name", "schema", "time", "lateness", "where", "keep", "event_id", "idle", "stamp", "extra")


def application(db: Database, settings: Settings, *places: str) -> Guard:
    """An ASGI application over a database, which it closes when it ends.  places: folders that no message names."""
    told = Telling(*places)
    held: list[Service] = []

    def handled(handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        async def handle(request: Request) -> Response:
            service = held[0]
            service.counts[handler.__name__.strip("_")] += 1
            try:
                return await handler(service, request)
            except HTTPException:
                raise
            except BodyRefused as error:
                return guard.refusal(error.reason)
            except Exception as error:
                service.counts["errors"] += 1
                return told.response(error)

        return handle

    def route(path: str, handler: Handler, *methods: str) -> BaseRoute:
        return Route(path, handled(handler), methods=list(methods))

    async def socket(websocket: Any) -> None:
        await over_websocket(held[0], websocket)

    @contextlib.asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        service = Service(db, settings, told)
        service.guard = guard
        guard.service = service
        held[:] = [service]
        await service.begin()
        try:
            yield
        finally:
            await service.close()

    async def failed(_request: Request, error: Exception) -> Response:
        return told.response(error)

    async def refused(_request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return JSONResponse({"error": error.detail, "kind": "http"}, error.status_code)

    app: ASGIApp = Starlette(
        routes=[
            *(route(path, _page, "GET") for path in _PAGE),
            route("/openapi.json", _openapi, "GET"),
            route("/health", _health, "GET"),
            route("/ready", _ready, "GET"),
            route("/metrics", _metrics, "GET"),
            route("/sql", _sql, "POST"),
            route("/streams", _streams, "GET", "POST"),
            route("/streams/{name}", _stream, "GET"),
            route("/streams/{name}/rows", _push, "POST"),
            route("/streams/{name}/advance", _advance, "POST"),
            route("/queries", _queries, "GET"),
            route("/queries/{name}", _query, "GET", "PUT", "DELETE"),
            route("/queries/{name}/outputs", _outputs, "GET"),
            route("/queries/{name}/now", _now, "GET"),
            route("/advance", _advance_all, "POST"),
            route("/checkpoint", _checkpoint, "POST"),
            WebSocketRoute("/queries/{name}/socket", socket),
        ],
        lifespan=lifespan,
        exception_handlers={Exception: failed, HTTPException: refused},
    )
    guard = Guard(app, settings)
    return guard


async def _page(_service: Service, request: Request) -> Response:
    """The inspector: three files that ask for nothing but what lies here, and hold nothing of the database."""
    file, media = _PAGE[request.url.path]
    return Response(_PAGES.joinpath(file).read_bytes(), media_type=media, headers=_PAGE_HEADERS)


async def _openapi(_service: Service, _request: Request) -> Response:
    return JSONResponse(document())


async def _health(_service: Service, _request: Request) -> Response:
    return JSONResponse({"nile": __version__})


async def _ready(service: Service, _request: Request) -> Response:
    ready = not (service.closing.is_set() or service.closed)
    return JSONResponse({"ready": ready}, 200 if ready else 503)


async def _sql(service: Service, request: Request) -> Response:
    form = form_of(request.headers.get("accept"), ("ndjson", "arrow", "csv"))
    asked = read_asked(await request.body(), request.headers.get("content-type", ""))

    def ask() -> Found:
        result = service.db.sql(asked.text, asked.params, files=service.settings.files, **asked.options)
        return result.schema, result.batches(), result

    return await answered(service, request, ask, form)


async def _streams(service: Service, request: Request) -> Response:
    if request.method == "GET":
        names, stored = await service.change(lambda: (service.db.streams, service.db.relations))
        return JSONResponse({"streams": list(names), "relations": list(stored)})
    given = read_json(await request.body(), "stream")
    unknown = sorted(set(given) - set(_STREAM_KEYS))
    if unknown or not isinstance(given.get("name"), str) or not isinstance(given.get("time"), str):
        raise ConfigError(
            f"stream: needed name, schema, time, and perhaps {', '.join(_STREAM_KEYS[3:])}; got "
            f"{', '.join(unknown or given) or 'nothing'}; see docs/server.md"
        )
    schema = read_schema(given.pop("schema", None), f"stream '{given['name']}'")
    name = given.pop("name")
    await service.change(service.db.stream, name, schema, **given)
    return JSONResponse({"stream": name}, 201)


async def _stream(service: Service, request: Request) -> Response:
    return JSONResponse(await service.change(_described, service.db, request.path_params["name"]))


def _described(db: Database, name: str) -> dict[str, Any]:
    """A stream: its columns, and of a live one how far it is and where its tuples went."""
    schema = db.schema(name)
    told: dict[str, Any] = {
        "stream": name,
        "schema": schema_to_json(schema),
        "time": db.time_column(name) if name in db.streams else None,
    }
    with contextlib.suppress(UnknownStream):  # one that has a source
        told["accounting"] = asdict(db.accounting(name))
        told["offset"] = db.offset(name)
    return told


async def _push(service: Service, request: Request) -> Response:
    name = request.path_params["name"]
    form = form_of(request.headers.get("content-type"), ("ndjson", "arrow", "csv"))
    offset = request.headers.get("nile-offset")
    try:
        place = None if offset is None else json.loads(offset)
    except (ValueError, RecursionError):
        raise ConfigError("Nile-Offset: needed a JSON value; got other text; write a number") from None
    body = await request.body()

    def push() -> dict[str, Any]:
        db = service.db
        rows = read_rows(body, form, db.schema(name))
        done = db.push(name, rows, offset=place)
        return {"rows": rows.num_rows, "done": done, "offset": db.offset(name)}

    told = await service.change(push)
    service.counts["rows_in"] += told["rows"]
    service.counts["bytes_in"] += len(body)
    return JSONResponse(told)


async def _advance(service: Service, request: Request) -> Response:
    given = read_json(await request.body(), "advance")
    await service.change(service.db.advance, given.get("time"), request.path_params["name"])
    return JSONResponse({"stream": request.path_params["name"]})


async def _advance_all(service: Service, request: Request) -> Response:
    given = read_json(await request.body(), "advance")

    def advance() -> list[str]:
        service.db.advance(given.get("time"))
        return list(service.db.streams)

    return JSONResponse({"streams": await service.change(advance)})


async def _queries(service: Service, _request: Request) -> Response:
    return JSONResponse({"queries": dict(await service.change(lambda: service.db.unread))})


async def _query(service: Service, request: Request) -> Response:
    name = request.path_params["name"]
    if request.method == "PUT":
        asked = read_asked(await request.body(), request.headers.get("content-type", ""))
        await service.change(service.db.subscribe, asked.text, name=name, params=asked.params, **asked.options)
    feed = await service.feed(name)
    if request.method == "DELETE":
        await service.change(feed.subscription.close)
        return JSONResponse({"query": name, "outputs": feed.subscription.outputs})
    standing = feed.subscription
    return JSONResponse(
        {
            "query": name, "epoch": feed.epoch, "outputs": standing.outputs, "unread": standing.unread,
            "schema": schema_to_json(standing.schema), "streams": list(standing.streams), "readers": feed.readers,
            "snapshot": _is_state(standing),
        },
        201 if request.method == "PUT" else 200,
    )  # fmt: skip


async def _outputs(service: Service, request: Request) -> Response:
    form = form_of(request.headers.get("accept"), ("ndjson", "events", "arrow"))
    told = request.query_params.get("from") or request.headers.get("last-event-id")
    return await followed(service, request, form, told, read_wait(request.query_params.get("wait")))


async def _now(service: Service, request: Request) -> Response:
    """Of a query that emits snapshots: its state."""
    form = form_of(request.headers.get("accept"), ("ndjson", "arrow", "csv"))
    standing = (await service.feed(request.path_params["name"])).subscription
    if not _is_state(standing):
        raise ConfigError(
            f"query {request.path_params['name']!r}: needed one that emits snapshots; got another; follow its outputs"
        )
    found = await service.change(standing.poll)
    return await answered(service, request, lambda: (standing.schema, iter(found), None), form)


def _is_state(standing: Subscription) -> bool:
    """Whether a query tells a state instead of outputs."""
    return isinstance(standing, ExactSubscription) and standing.choice.emit == "snapshot"


async def _checkpoint(service: Service, _request: Request) -> Response:
    return JSONResponse({"epoch": await service.change(service.db.checkpoint)})


async def _metrics(service: Service, _request: Request) -> Response:
    return PlainTextResponse(
        exposed(await service.change(service.families)), media_type="text/plain; version=0.0.4; charset=utf-8"
    )
