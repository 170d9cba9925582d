"""numba for those who may import no lower floor: all of it, Ctrl-C or not (`nile.summaries.lazy`)."""

from __future__ import annotations

from nile.summaries.heavy import numba

__all__ = ["numba"]
