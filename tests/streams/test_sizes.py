"""Sizes are read as people write them, or refused with a sentence."""

from __future__ import annotations

from typing import Any

import pytest

from nile.base.sizes import format_size, parse_size
from nile.summaries.errors import ConfigError


@pytest.mark.parametrize(
    ("given", "bytes_"),
    [
        (1, 1),
        (1e6, 1_000_000),
        ("256MB", 256_000_000),
        ("256 mb", 256_000_000),
        ("1.5 GB", 1_500_000_000),
        ("512 MiB", 512 << 20),
        ("2k", 2_000),
        ("17", 17),
        (" 3 TB ", 3_000_000_000_000),
        ("0.0015 kB", 2),
    ],
)
def test_sizes_are_read(given: Any, bytes_: int) -> None:
    assert parse_size(given, where="memory") == bytes_


@pytest.mark.parametrize(
    "given",
    [
        "",
        "MB",
        "256 XB",
        "-1",
        "1e3",
        "1 2 MB",
        True,
        None,
        float("nan"),
        float("inf"),
        10**400,
        0,
        "0",
        -5,
        "9" * 50,
        2**61,
        b"1",
    ],
)
def test_what_is_no_size_is_refused_with_the_setting(given: Any) -> None:
    with pytest.raises(ConfigError, match=r"^memory: needed "):
        parse_size(given, where="memory")


def test_a_least_size_is_kept() -> None:
    assert parse_size("16MB", where="memory", least=16_000_000) == 16_000_000
    with pytest.raises(ConfigError, match="needed 16 MB to"):
        parse_size("15MB", where="memory", least=16_000_000)


@pytest.mark.parametrize(
    ("bytes_", "text"),
    [(0, "0 bytes"), (999, "999 bytes"), (1000, "1 kB"), (1250, "1.25 kB"), (999_600, "1 MB"), (256_000_000, "256 MB")],
)
def test_sizes_are_shown_with_three_digits(bytes_: int, text: str) -> None:
    assert format_size(bytes_) == text
