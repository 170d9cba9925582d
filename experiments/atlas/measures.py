"""Every kind of experiment there is.  Importing a module of kinds registers what it defines."""

from __future__ import annotations

from experiments.atlas import join_kind
from experiments.atlas.kinds import kind_of, kinds

__all__ = ["join_kind", "kind_of", "kinds"]
