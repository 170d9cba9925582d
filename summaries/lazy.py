"""Heavy packages load on first use, so that `import nile` stays fast; Ctrl-C waits until they have.

Compiled packages that are interrupted while they load may not load again: numpy is without half of its names from then
on; pandas, which Arrow loads in the middle of a call, and numba say that they are partially initialized.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import lru_cache
from types import ModuleType
from typing import Any

__all__ = ["LazyModule", "lazy", "lazy_names", "load", "load_inside"]

_LOADED: set[str] = set()
_inside: AbstractContextManager[object] = nullcontext()


def load_inside(block: AbstractContextManager[object]) -> None:
    """What is loaded from now on is inside of this block: one that lets Ctrl-C wait stands above this floor."""
    global _inside
    _inside = block


def load(name: str) -> ModuleType:
    """Import a module, all of it."""
    if name in _LOADED:
        return importlib.import_module(name)
    with _inside:
        return _load(name)


def _load(name: str) -> ModuleType:
    module = importlib.import_module(name)
    _LOADED.add(name)
    if name == "pyarrow":
        with suppress(ImportError):  # it loads pandas, where there is one, when first given a list
            importlib.import_module("pandas")
    if name == "numba":
        _ready_numba()
    return module


def _ready_numba() -> None:
    """What numba does at its first call, of which nothing may be interrupted.

    Compiled code asks `_numba_unpickle` for the types of arrays that it returns and does not look whether it failed: an
    interrupt raised inside comes out as SystemError.  Behind a cache in C it runs no Python for what it has seen, so no
    signal is handled there.  It counts only before the first kernel is called.
    """
    from numba.core import serialize
    from numba.core.registry import cpu_target

    if not hasattr(serialize._numba_unpickle, "cache_info"):
        serialize._numba_unpickle = lru_cache(maxsize=None)(serialize._numba_unpickle)
    cpu_target.typing_context.refresh()
    cpu_target.target_context.refresh()


class LazyModule(ModuleType):
    """Stands for a module and imports it when an attribute is first asked for."""

    def __getattr__(self, attribute: str) -> Any:
        module = load(self.__name__)
        value = getattr(module, attribute)
        setattr(self, attribute, value)
        return value


def lazy(name: str) -> Any:
    """A stand-in for module `name`. Costs nothing until an attribute of it is used."""
    return LazyModule(name)


def lazy_names(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package whose names load on first use.  homes: the module of each name."""

    def found(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(load(home), name)
        setattr(sys.modules[package], name, value)
        return value

    return found
