"""The catalogue: one small file an experiment, found by its name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nile.experiments.atlas.edge import load_experiment
from nile.experiments.atlas.form import Experiment
from nile.experiments.run.fields import nearest
from nile.summaries.errors import ConfigError

__all__ = ["CATALOGUE", "chosen", "names"]

CATALOGUE = Path(__file__).parent


def names() -> tuple[str, ...]:
    """Every experiment of the catalogue: figures of a paper in their order, by name."""
    return tuple(sorted((file.stem for file in CATALOGUE.glob("*.toml")), key=_order))


def chosen(wanted: Sequence[str]) -> list[Experiment]:
    """Experiments by name, in the order of the catalogue; one that ends in .toml is a file of the user's own.

    Raises ConfigError for an unknown name, with the nearest known one, and what `load_experiment` raises.
    """
    known = names()
    files: dict[str, Path] = {}
    for name in wanted:
        if name.endswith(".toml"):
            files[Path(name).stem] = Path(name)
        elif name in known:
            files[name] = CATALOGUE / f"{name}.toml"
        else:
            near = nearest(name, known) or "; `nile experiment list` shows them all"
            raise ConfigError(f"experiment: needed a name of the catalogue; got {name!r}{near}")
    return [load_experiment(files[name]) for name in sorted(files, key=_order)]


def _order(name: str) -> tuple[str, int, str]:
    """By family, then by the number in the name: promising-9a before promising-10b."""
    family, _, place = name.partition("-")
    digits = "".join(ch for ch in place if ch.isdigit())
    return family, int(digits) if digits else 0, place
