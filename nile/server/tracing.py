"""A span for each request, where OpenTelemetry is installed and set up; else nothing.

Source: OpenTelemetry, "Semantic conventions for HTTP spans"; W3C, "Trace Context".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from starlette.datastructures import Headers
from starlette.types import Scope

__all__ = ["traced"]

Said = Callable[[int], None]
"""Told the status of the response."""


@lru_cache(maxsize=1)
def _tracing() -> tuple[Any, Any] | None:
    try:
        from opentelemetry import propagate, trace
    except ModuleNotFoundError:
        return None
    return trace, propagate


@contextmanager
def traced(scope: Scope, headers: Headers) -> Iterator[Said]:
    """A request as a span: a part of the trace that its `traceparent` names.  It names the path and no token or row."""
    found = _tracing()
    if found is None:
        yield lambda _status: None
        return
    trace, propagate = found
    with trace.get_tracer("nile.server").start_as_current_span(
        str(scope.get("method", "GET")),
        context=propagate.extract(dict(headers)),
        kind=trace.SpanKind.SERVER,
        attributes={"http.request.method": str(scope.get("method", "GET")), "url.path": str(scope["path"])},
    ) as span:

        def said(status: int) -> None:
            span.set_attribute("http.response.status_code", status)
            if status >= 500:
                span.set_status(trace.Status(trace.StatusCode.ERROR))

        yield said
