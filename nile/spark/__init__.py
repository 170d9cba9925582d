"""The data pipeline on Spark.  Loaded on first use: `nile.spark.ingest` starts nothing until it is called."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nile.spark.ingesting import Ingested, ingest

__all__ = ["Ingested", "ingest"]

_HOMES = {"Ingested": "nile.spark.ingesting", "ingest": "nile.spark.ingesting"}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'nile.spark' has no attribute '{name}'")
    return getattr(importlib.import_module(home), name)
