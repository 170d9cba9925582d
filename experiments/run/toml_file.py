"""A TOML file read whole, or one clear message that says what is wrong with it and on which line."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from nile.summaries.errors import ConfigError, SourceMissing

__all__ = ["LARGEST_FILE", "read_toml"]

LARGEST_FILE = 256 * 1024
"""Bytes.  A config of more is no config."""


def read_toml(file: Path, *, advice: str) -> tuple[dict[str, Any], str]:
    """The table of a TOML file and its text, with line feeds alone.  advice: what to do when there is no file.

    Raises SourceMissing when the file is not there, ConfigError for a directory, more than LARGEST_FILE bytes,
    other encodings than UTF-8 and what is no TOML, with file and line.
    """
    if not file.exists():
        raise SourceMissing(f"config {file}: no such file; {advice}")
    if not file.is_file():
        raise ConfigError(f"config {file}: needed a TOML file, got a directory")
    raw = file.read_bytes()
    if len(raw) > LARGEST_FILE:
        raise ConfigError(f"config {file}: needed at most {LARGEST_FILE} bytes of TOML, got {len(raw)}")
    try:
        text = raw.decode("utf-8-sig").replace("\r\n", "\n")
        table = tomllib.loads(text)
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise ConfigError(f"{file}:{line}: needed TOML in UTF-8; got byte 0x{raw[error.start]:02x}") from None
    except tomllib.TOMLDecodeError as error:
        reason, line = _reason_and_line(str(error), text)
        raise ConfigError(f"{file}:{line}: needed TOML, with text in quotes; got: {reason}") from None
    except (RecursionError, ValueError):  # arrays in arrays without end, integers of thousands of digits
        raise ConfigError(f"config {file}: needed plain TOML; got values too deep or too long") from None
    return table, text


def _reason_and_line(message: str, text: str) -> tuple[str, int]:
    """The parser's message without its place, and the line of that place."""
    place = re.search(r" \(at (?:line (\d+), column \d+|end of document)\)$", message)
    line = int(place[1]) if place and place[1] else text.rstrip("\n").count("\n") + 1
    return (message[: place.start()] if place else message).lower(), line
