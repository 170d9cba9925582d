"""How much memory an answer may take that is held whole, as the database that it is of allows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

__all__ = ["LEAST_ROOM", "allowed_room", "each_within", "within"]

T = TypeVar("T")
LEAST_ROOM = 64 << 20
"""Bytes that an answer may take under any `connect(memory=)`: a third of what a process takes before it holds a row."""

_ROOM: ContextVar[int | None] = ContextVar("room", default=None)


def allowed_room() -> int | None:
    """Bytes; None: nobody has said."""
    return _ROOM.get()


@contextmanager
def within(room: int | None) -> Iterator[None]:
    """What is held inside is part of an answer that may take so many bytes."""
    before = _ROOM.set(room)
    try:
        yield
    finally:
        _ROOM.reset(before)


def each_within(room: int | None, items: Iterator[T]) -> Iterator[T]:
    """The same items, each of them found `within` that room; whoever takes them in between is not."""
    nothing = object()
    while True:
        with within(room):
            found = next(items, nothing)
        if found is nothing:
            return
        yield found  # type: ignore[misc]
