"""A plan as EXPLAIN shows it: as text, and as values for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["Explained", "ExplainedAs"]

ExplainedAs = Literal["text", "json"]


@dataclass(frozen=True, slots=True)
class Explained:
    """lines: in words.  values: what JSON can hold; nothing: the lines themselves."""

    lines: Sequence[str]
    values: Mapping[str, Any] = field(default_factory=dict)

    def told(self, form: ExplainedAs, progress: Sequence[str]) -> str:
        """One text.  progress: how the same query is answered as it goes on, in words; none where it cannot be."""
        if form == "json":
            values = self.values or {"lines": list(self.lines)}
            return json.dumps({**values, **({"progress": list(progress)} if progress else {})}, indent=2)
        further = ["progress():", *(f"  {line}" for line in progress)] if progress else []
        return "\n".join([*self.lines, *further])
