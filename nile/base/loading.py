"""Compiled packages load whole: Ctrl-C that comes meanwhile is answered when they have.

Modules of theirs that are interrupted while they load may not load again: numpy is without half of its names from then
on; pandas, which Arrow loads in the middle of a call, and numba say that they are partially initialized.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from types import FrameType, ModuleType
from typing import Any

__all__ = ["load_whole"]

_COMPILED = ("duckdb", "llvmlite", "numba", "numpy", "pandas", "polars", "pyarrow")
_STEP = 0.001
"""Seconds between two looks whether an import has ended: what is raised inside of it undoes it."""


class _Whole:
    """Finds the modules of compiled packages as the finders behind it do.  Cost: microseconds a module."""

    def __init__(self) -> None:
        self._loading = False

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name.partition(".")[0] not in _COMPILED:
            return None
        behind = sys.meta_path[sys.meta_path.index(self) + 1 :]
        spec = next((found for each in behind if (found := each.find_spec(name, path, target)) is not None), None)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def whole(module: ModuleType) -> None:
                self._load(load, module)

            spec.loader.exec_module = whole  # type: ignore[method-assign]
        return spec

    def _load(self, load: Any, module: ModuleType) -> None:
        import signal
        import threading

        handler = signal.getsignal(signal.SIGINT)
        if self._loading or not callable(handler) or threading.current_thread() is not threading.main_thread():
            load(module)
            return
        came: list[int] = []

        def noted(number: int, _frame: FrameType | None) -> None:
            came.append(number)

        self._loading = True
        signal.signal(signal.SIGINT, noted)
        try:
            load(module)
        finally:
            self._loading = False
            if signal.getsignal(signal.SIGINT) is noted:
                signal.signal(signal.SIGINT, handler)
            if came:
                threading.Thread(target=_again, args=(module,), daemon=True).start()


def _again(module: ModuleType) -> None:
    """Send what waited to the main thread once it has left the import of a module."""
    import signal
    import threading
    import time

    name = module.__name__
    parent, _, child = name.rpartition(".")
    spec = module.__spec__
    while getattr(spec, "_initializing", False) or (
        parent and name in sys.modules and child not in vars(sys.modules.get(parent, module))
    ):
        time.sleep(_STEP)
    time.sleep(_STEP)
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def load_whole() -> None:
    """From now on; what has been loaded stays as it is."""
    sys.meta_path.insert(0, _Whole())
