"""An experiment small enough for a test, as its file has it."""

from __future__ import annotations

from pathlib import Path

__all__ = ["GOOD", "written"]

GOOD = """\
title = "A title"
source = "ours"
says = "More budget, more pairs."
expect = "So it is."
kind = "join"
metrics = ["recall", "t_hit"]

[axis]
option = "budget"
label = "budget"
values = [0.1, 0.5, 0.9]
quick = [0.1, 0.9]
unit = "share"
scale = "log"

[options]
tuples = 300

[methods.nile]
guide = "directory"

[methods.drop]
method = "hash-drop"
opponent = true

[[claims]]
by = "nile"
says = "It grows."
predicate = "grows"
subjects = ["nile"]

[[claims]]
by = "paper"
says = "It is ahead."
predicate = "above"
subjects = ["nile"]
against = ["drop"]
"""


def written(folder: Path, text: str) -> Path:
    file = folder / "mine.toml"
    file.write_text(text, encoding="utf-8")
    return file
