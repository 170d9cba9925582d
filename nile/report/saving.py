"""Files of a report, each written whole or not at all."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nile.summaries.errors import ConfigError

__all__ = ["check_out", "page_and_json", "save_texts", "to_json"]


def to_json(report: Mapping[str, Any]) -> str:
    """A report as JSON text.  Raises ValueError for a NaN or an infinity, which JSON has not."""
    return json.dumps(report, indent=1, allow_nan=False) + "\n"


def page_and_json(out: Path) -> tuple[Path, Path]:
    """Where the page and the figures go: FILE.html and FILE.json, else report.html and report.json in a folder."""
    if out.suffix.lower() in (".html", ".htm"):
        return out, out.with_suffix(".json")
    return out / "report.html", out / "report.json"


def check_out(out: Path) -> None:
    """See that a report's folder can be written, or made, before the work; none is made.  Raises ConfigError."""
    try:
        with tempfile.TemporaryFile(dir=next(place for place in (out, *out.absolute().parents) if place.exists())):
            pass
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(
            f"--out: needed a folder that can be written; got {str(out)!r}: {reason}; name another"
        ) from None


def save_texts(texts: Mapping[Path, str]) -> None:
    """Write each text in UTF-8 to its path; folders are made.  Raises ConfigError where that cannot be done."""
    for path, text in texts.items():
        partial = path.with_name(path.name + ".partial")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            partial.write_text(text, encoding="utf-8", newline="")
            shutil.move(partial, path)
        except OSError as error:
            reason = error.strerror or str(error)
            raise ConfigError(
                f"report: needed a file that can be written; got {str(path)!r}: {reason}; name another place"
            ) from None
