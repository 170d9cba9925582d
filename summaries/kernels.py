"""How Nile compiles: one decorator, one cache, for every kernel of every floor.

A kernel takes and returns plain arrays and scalars and is called with batches of 256 tuples or more
(one call a tuple is no faster than pure Python).  Modules that define kernels end in `kernels` and are
imported lazily, because loading numba takes longer than all the rest of Nile.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba
import numpy as np

__all__ = ["U8", "cold_start", "inlined", "kernel", "part"]

Function = TypeVar("Function", bound=Callable[..., Any])
_FLOORS = ("summaries", "pyramid", "preferences", "nile")


def _fingerprint() -> str:
    """Digest of every kernel source.

    numba's own cache looks at the file of the outermost function only, so an edit to a kernel that is
    called from another file would go unnoticed.
    """
    digest = hashlib.blake2b(numba.__version__.encode(), digest_size=8)
    root = Path(__file__).parent.parent
    for floor in _FLOORS:
        for path in sorted((root / floor).rglob("*kernels.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _cache_home() -> Path:
    named = os.environ.get("NUMBA_CACHE_DIR")
    if named:
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "nile"


_CACHE = _cache_home() / f"kernels-{_fingerprint()}"
_COLD = not _CACHE.exists()
try:
    _CACHE.mkdir(parents=True, exist_ok=True)
    _STORED = os.access(_CACHE, os.W_OK)
except OSError:
    _STORED = False
if _STORED:
    numba.config.CACHE_DIR = str(_CACHE)


def cold_start() -> bool:
    """True when this process is the first to compile these kernels (tens of seconds, said by progress)."""
    return _COLD


def kernel(function: Function) -> Function:
    """Compile `function` on first call, without the GIL, and keep the machine code between processes."""
    compiled: Function = numba.njit(cache=_STORED, nogil=True, error_model="numpy")(function)
    return compiled


def part(function: Function) -> Function:
    """Compile a piece that only kernels call: no Python entry, so it compiles in a fraction of the time."""
    compiled: Function = numba.njit(
        cache=_STORED, nogil=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True
    )(function)
    return compiled


def inlined(function: Function) -> Function:
    """Compile a small piece into its callers: for what runs once a tuple and takes whole Sides.

    Without it each call would count references to every array of the Side, which costs more than the work.
    """
    compiled: Function = numba.njit(
        cache=_STORED,
        nogil=True,
        error_model="numpy",
        no_cpython_wrapper=True,
        no_cfunc_wrapper=True,
        forceinline=True,
    )(function)
    return compiled


U8 = np.uint64
