"""How Nile compiles: one decorator, one cache, for every kernel of every floor.

A kernel takes and returns plain arrays and scalars and is called with batches of 256 tuples or more
(one call per tuple is no faster than pure Python).  Modules that define kernels end in `kernels` and are
imported lazily, because loading numba takes longer than all the rest of Nile.
"""

from __future__ import annotations

import hashlib
import os
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from nile.summaries.errors import CompileWarning
from nile.summaries.lazy import load
from nile.summaries.package import NILE, files_below, is_compiled_in, kernel_key

load("numba")  # before any of its parts is named: Ctrl-C waits for all of them

import numba  # noqa: E402
from numba.core import caching, event  # noqa: E402

__all__ = ["U8", "allocating_kernel", "allocating_part", "cold_start", "inlined", "kernel", "part", "told"]

Function = TypeVar("Function", bound=Callable[..., Any])
_PATIENCE = 1.0
"""Seconds of compiling after which a process says what it waits for."""
_UNUSED = 30 * 86_400
"""Seconds after which a cache of another version is emptied."""
_BASE: Any = getattr(caching, "UserProvidedCacheLocator", None)  # numba before 0.68 has it not for others


def _fingerprint() -> str:
    """Digest of every kernel source, and of the places in state arrays that kernels have compiled in: a version."""
    digest = hashlib.blake2b(numba.__version__.encode(), digest_size=8)
    for path in files_below(NILE):
        if is_compiled_in(path):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _cache_homes() -> list[Path]:
    """Where compiled kernels may be kept, best first: as told, the user's own cache, beside the code.

    The last is for executors, whose user may have no home: Spark unpacks Nile's code where its tasks may write.
    """
    named = os.environ.get("NUMBA_CACHE_DIR")
    if named:
        return [Path(named)]
    base = os.environ.get("XDG_CACHE_HOME")
    return [(Path(base) if base else Path(os.path.expanduser("~")) / ".cache") / "nile", NILE.parent / "nile-kernels"]


def _writable(home: Path) -> bool:
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(home, os.W_OK)


def _begun(cache: Path, *, cold: bool) -> None:
    """Mark the cache as used now; a cold one empties those of other versions that nobody has begun with for long.

    Their directories stay: a process of that version may still run, and finds its kernels missing as on its first day.
    """
    with suppress(OSError):
        os.utime(cache)
        if not cold:
            return
        for other in cache.parent.glob("kernels-*"):
            if other != cache and other.stat().st_mtime < time.time() - _UNUSED:
                for file in other.glob("*/*.nb[ic]"):
                    file.unlink(missing_ok=True)


def _adopt(folder: Path) -> None:
    """Take over the kernels of a module from the last version that has them as they would compile now."""
    if folder.exists():
        return
    with suppress(OSError):
        others = [
            each for each in folder.parent.parent.glob(f"kernels-*/{folder.name}") if each.parent != folder.parent
        ]
        others.sort(key=lambda each: each.stat().st_mtime)
        folder.mkdir(parents=True, exist_ok=True)
        for kind in ("*.nbc", "*.nbi") if others else ():  # an index after what it tells of
            for file in others[-1].glob(kind):
                with suppress(FileExistsError):
                    os.link(file, folder / file.name)


_NAME = f"kernels-{_fingerprint()}"
_HOMES = [home / _NAME for home in _cache_homes()]
_COLD = not any(home.exists() for home in _HOMES)
_CACHE = next((home for home in _HOMES if _writable(home)), None)
if _CACHE is not None:
    _begun(_CACHE, cold=_COLD)


class KernelLocator(_BASE or object):  # type: ignore[misc]
    """Where numba keeps a kernel of Nile: under the place of its module in Nile, wherever Nile itself stands.

    By numba's own rule each path compiles anew, and Spark unpacks Nile's code for each application in another one.
    numba looks at the file of the outermost function only; here a module's kernels lie under a digest of all that they
    have compiled in (`kernel_key`), so that an edit compiles what it concerns, and all of that.
    """

    @classmethod
    def get_suitable_cache_subpath(cls, py_file: str) -> str:
        """A directory for the kernels of one module."""
        path = Path(py_file)
        module = ".".join(path.with_suffix("").relative_to(NILE.parent).parts)
        return f"{module}-{kernel_key(path, NILE)}"

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> Any:
        """A locator for a function of Nile's; None for others, which numba asks its own locators for."""
        if not Path(py_file).is_relative_to(NILE):
            return None
        if _CACHE is not None:
            _adopt(_CACHE / cls.get_suitable_cache_subpath(py_file))
        return super().from_function(py_func, py_file)


if _CACHE is not None:
    numba.config.CACHE_DIR = str(_CACHE)
    if _BASE is not None and not numba.config.CACHE_LOCATOR_CLASSES:
        own = f"{KernelLocator.__module__}.{KernelLocator.__name__}"
        rest = (locator.__name__ for locator in caching.CacheImpl._locator_classes)
        numba.config.CACHE_LOCATOR_CLASSES = ",".join((own, *rest))


def cold_start() -> bool:
    """True when this process is the first to compile these kernels (tens of seconds, said by progress)."""
    return _COLD


class _Compiling(event.Listener):  # type: ignore[misc]
    """Warns once a process when compiling has kept it waiting for a second: it is not hung."""

    def __init__(self) -> None:
        self.told = False
        self._began: list[float] = []  # by nesting: numba holds one lock over all that compiles
        self._before = 0.0

    def on_start(self, event: Any) -> None:
        if self._is_ours(event):
            self._look()
            self._began.append(time.perf_counter())

    def on_end(self, event: Any) -> None:
        if self._is_ours(event) and self._began:
            self._look()
            began = self._began.pop()
            if not self._began:
                self._before += time.perf_counter() - began

    @staticmethod
    def _is_ours(event: Any) -> bool:
        return str(event.data["dispatcher"].py_func.__module__).startswith("nile.")

    def _look(self) -> None:
        if self.told or not self._began or self._before + time.perf_counter() - self._began[0] < _PATIENCE:
            return
        self.told = True
        kept = "once on this machine; `nile doctor --warm` compiles the usual ones beforehand"
        if _CACHE is None:
            kept = f"anew in each process: {_HOMES[0].parent} cannot be written, set NUMBA_CACHE_DIR to what can"
        text = f"compiling kernels for a query of this kind (at most about half a minute), {kept}"
        warnings.warn_explicit(text, CompileWarning, "nile", 1)


_COMPILING = _Compiling()
event.register("numba:compile", _COMPILING)


def told() -> None:
    """Whoever waits knows that kernels compile: warn no more in this process."""
    _COMPILING.told = True


def _compiled(function: Function, *, allocates: bool = False, **options: bool) -> Function:
    """Without the GIL, kept between processes; without counting references to arrays, unless it makes some.

    A kernel borrows its arrays: whoever calls from Python holds them.  Counting costs two atomic operations an
    array and call, of which a tuple of arrays has many: more than the work of most pieces.
    """
    compiled: Function = numba.njit(
        cache=_CACHE is not None, nogil=True, error_model="numpy", _nrt=allocates, **options
    )(function)
    return compiled


def kernel(function: Function) -> Function:
    """Compile `function` on first call.  It makes no arrays, nor do reductions of numpy: see `allocating_kernel`."""
    return _compiled(function)


def part(function: Function) -> Function:
    """Compile a piece that only kernels call: no Python entry, so it compiles in a fraction of the time.

    It makes no arrays: see `allocating_part`.
    """
    return _compiled(function, no_cpython_wrapper=True, no_cfunc_wrapper=True)


def inlined(function: Function) -> Function:
    """Compile a small piece into its callers: for what runs once a tuple and takes whole Sides.

    Without it each call would hand over every field of every array, which costs more than the work.
    """
    return _compiled(function, no_cpython_wrapper=True, no_cfunc_wrapper=True, forceinline=True)


def allocating_kernel(function: Function) -> Function:
    """A `kernel` that makes arrays for itself; it must not return them."""
    return _compiled(function, allocates=True)


def allocating_part(function: Function) -> Function:
    """A `part` that makes arrays for itself; it must not return them, for a caller that borrows would never free them.

    It counts references to all that it is handed: give it few arrays, and call it seldom.
    """
    return _compiled(function, allocates=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)


U8 = np.uint64
