"""What an object may hold of itself and still be let go, with all that it has, when nobody else holds it."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar
from weakref import WeakMethod

__all__ = ["weakly"]

T = TypeVar("T")
P = ParamSpec("P")


def weakly(method: Callable[P, T]) -> Callable[P, T]:
    """A bound method that does not hold its object, for those whom that object holds; called while there is one.

    What holds itself waits until garbage is collected, and so does the memory of all that it has: answers asked one
    after the other each clear new pages instead, for up to a third of their time.
    """
    held = WeakMethod(method)

    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        bound = held()
        assert bound is not None
        return bound(*args, **kwargs)

    return call
