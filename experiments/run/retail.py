"""The real retail file that may lie beside the project: nothing of it is shipped."""

from __future__ import annotations

from pathlib import Path

__all__ = ["retail_file"]

_RETAIL = Path(__file__).parents[4] / "shared" / "data" / "retail_uci.parquet"


def retail_file() -> Path | None:
    """UCI Online Retail as Parquet, or None where it is not."""
    return _RETAIL if _RETAIL.exists() else None
