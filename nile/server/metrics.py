"""The server's metrics, in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

__all__ = ["Family", "Sample", "exposed"]

Sample = tuple[Mapping[str, str], float]
Family = tuple[str, str, str, list[Sample]]


def exposed(families: Iterable[Family]) -> str:
    """(name, kind, help, samples) of each family as text.  Source: Prometheus, "Text-based format", version 0.0.4."""
    lines = []
    for name, kind, told, samples in families:
        lines += [f"# HELP {name} {told}", f"# TYPE {name} {kind}"]
        for labels, value in samples:
            named = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
            lines.append(f"{name}{{{named}}} {value:.17g}" if named else f"{name} {value:.17g}")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
