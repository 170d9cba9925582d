"""What a client learns of an error: the engine's message without paths, or a number."""

from __future__ import annotations

import json
import logging
import os
import secrets
import time
from pathlib import Path
from typing import Any

from starlette.responses import JSONResponse

from nile.summaries.errors import (
    DatabaseClosed,
    DatabaseTorn,
    MemoryRefused,
    NileError,
    NotYet,
    Overloaded,
    StoreError,
    UnknownStream,
)

__all__ = ["JsonLines", "Telling", "log"]

_LOGGER = logging.getLogger("nile.server")
_STATUS: tuple[tuple[type[Exception], int], ...] = (
    (UnknownStream, 404),
    (NotYet, 501),
    (Overloaded, 503),
    (MemoryRefused, 413),
    (DatabaseClosed, 503),
    (DatabaseTorn, 503),
    (StoreError, 503),
)


def log(event: str, **facts: Any) -> None:
    """A line of JSON in the log `nile.server`."""
    _LOGGER.info(json.dumps({"at": round(time.time(), 3), "event": event, **facts}, default=str))


class JsonLines(logging.Formatter):
    """Every record as a line of JSON: ours are already, those of packages become {"at", "event": "log", ...}."""

    def format(self, record: logging.LogRecord) -> str:
        if record.name == _LOGGER.name:
            return record.getMessage()
        told = {"at": round(record.created, 3), "event": "log", "of": record.name, "level": record.levelname.lower()}
        told["message"] = record.getMessage()
        if record.exc_info:
            told["trace"] = self.formatException(record.exc_info)
        return json.dumps(told, default=str)


class Telling:
    """Errors as a client reads them.  places: folders of this machine, which no message names."""

    def __init__(self, *places: str | os.PathLike[str]) -> None:
        known = {str(Path(place).resolve()) for place in places} | {str(place) for place in places}
        known |= {str(Path.home()), str(Path.cwd())}
        self._places = sorted((place for place in known if len(place) > 1), key=len, reverse=True)

    def told(self, error: BaseException) -> tuple[int, dict[str, str]]:
        """A status of HTTP, and what went wrong.  What is none of ours is told by a number that the log has too."""
        if not isinstance(error, NileError) or isinstance(error, StoreError):
            number = secrets.token_hex(4)
            log("failed", number=number, error=f"{type(error).__name__}: {error}")
            _LOGGER.debug("failed %s", number, exc_info=error)
            return (
                503 if isinstance(error, StoreError) else 500,
                {"error": f"the server could not do this; its log says why, under {number}", "kind": "failed"},
            )
        status = next((status for kind, status in _STATUS if isinstance(error, kind)), 400)
        return status, {"error": self._clean(str(error)), "kind": type(error).__name__}

    def response(self, error: BaseException) -> JSONResponse:
        """The same as a response."""
        status, body = self.told(error)
        return JSONResponse(body, status, {"retry-after": "1"} if status == 503 else None)

    def _clean(self, message: str) -> str:
        for place in self._places:
            message = message.replace(place, "...")
        return message
