"""Heavy packages load on first use, so that `import nile` stays fast; Ctrl-C waits until they have.

Compiled packages that are interrupted while they load may not load again: numpy is without half of its names from then
on; pandas, which Arrow loads in the middle of a call, and numba say that they are partially initialized.
"""

from __future__ import annotations

import importlib
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import lru_cache, wraps
from types import ModuleType
from typing import Any

__all__ = ["LazyModule", "lazy", "lazy_names", "load", "load_inside", "loading_ns"]

_LOADED: set[str] = set()
_inside: AbstractContextManager[object] = nullcontext()


class _Loading(threading.local):
    """What a thread has spent on loading: ns of CPU and by the clock, and how many loads it is inside of."""

    def __init__(self) -> None:
        self.ns = self.wall = 0
        self.inside = 0


_loading = _Loading()


@contextmanager
def _counted() -> Iterator[None]:
    """Around a load, which may be a part of another."""
    began, since = time.thread_time_ns(), time.perf_counter_ns()
    _loading.inside += 1
    try:
        yield
    finally:
        _loading.inside -= 1
        if not _loading.inside:
            _loading.ns += time.thread_time_ns() - began
            _loading.wall += time.perf_counter_ns() - since


def loading_ns(*, wall: bool = False) -> int:
    """ns that this thread has spent on loading packages and kernels, which each process does once: of CPU, or by the
    clock on the wall.
    """
    return _loading.wall if wall else _loading.ns


def load_inside(block: AbstractContextManager[object]) -> None:
    """What is loaded from now on is inside of this block: one that lets Ctrl-C wait stands above this floor."""
    global _inside
    _inside = block


def load(name: str) -> ModuleType:
    """Import a module, all of it."""
    if name in _LOADED:
        return importlib.import_module(name)
    with _inside, _counted():
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
    from llvmlite.binding import ffi
    from numba.core import dispatcher, serialize
    from numba.core.compiler_lock import global_compiler_lock
    from numba.core.registry import cpu_target

    if not hasattr(serialize._numba_unpickle, "cache_info"):
        serialize._numba_unpickle = lru_cache(maxsize=None)(serialize._numba_unpickle)
        locks = global_compiler_lock._lock, ffi.lib._lock._lock
        compiler: Any = dispatcher.Dispatcher
        compiler.compile = _giving_back(locks, compiler.compile)
    cpu_target.typing_context.refresh()
    cpu_target.target_context.refresh()


def _giving_back(locks: Sequence[Any], compiling: Callable[..., Any]) -> Callable[..., Any]:
    """Compile as numba does, and hold no lock of it, or of LLVM, afterwards.

    Both are taken in Python, a line before it is seen to that they are given back, and given back in Python: an
    interrupt in between leaves one taken for good, and threads that help the next query wait for it forever.
    """
    first, *_ = locks

    @wraps(compiling)
    def compiled(self: Any, sig: Any) -> Any:
        if first._is_owned():  # part of another compilation, which gives them back
            return compiling(self, sig)
        try:
            with _counted():
                return compiling(self, sig)
        finally:  # an interrupt in a destructor is no error of the compilation
            for lock in locks:
                while lock._is_owned():
                    lock.release()

    return compiled


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
