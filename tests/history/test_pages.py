"""Files of pages: what is read is what was written, byte for byte, or it is refused."""

from __future__ import annotations

import numpy as np
import pytest

from nile.pyramid.history.pages import PageFile, PageWriter
from nile.summaries.errors import StoreCorrupt

SIZES = (0, 1, 15, 16, 17, 100)


def file_of(pages: list[bytes]) -> bytes:
    """A file of these pages."""
    writer = PageWriter()
    body = [writer.start(), *(piece for page in pages for piece in writer.page(page))]
    return b"".join(bytes(piece) for piece in [*body, writer.finish("pages", {}, {})])


def opened(data: bytes) -> PageFile:
    """It, opened."""
    return PageFile(memoryview(data), "pages", "here")


@pytest.mark.parametrize("size", SIZES)
def test_every_changed_bit_of_a_page_is_told_and_the_other_pages_are_still_read(size: int) -> None:
    pages = [bytes(range(size)), b"another"]
    good = file_of(pages)
    at = int(opened(good).at(np.array([0]))[0])
    for bit in range(8 * size):
        bad = bytearray(good)
        bad[at + bit // 8] ^= 1 << bit % 8
        held = opened(bytes(bad))
        with pytest.raises(StoreCorrupt, match="page 0: needed checksum"):
            held.page(0)
        with pytest.raises(StoreCorrupt, match="page 0: needed checksum"):
            held.check(np.array([1, 0]))
        assert bytes(held.page(1)) == pages[1]
    assert bytes(opened(good).page(0)) == pages[0]


def test_pages_that_changed_places_or_were_overwritten_by_another_are_told() -> None:
    pages = [bytes([n]) * 24 for n in range(3)]
    good = file_of(pages)
    places = opened(good).at(np.arange(3)).tolist()
    for first in range(3):
        for second in range(3):
            if first == second:
                continue
            bad = bytearray(good)
            bad[places[first] : places[first] + 24] = pages[second]
            with pytest.raises(StoreCorrupt, match=f"page {first}"):
                opened(bytes(bad)).check(np.arange(3))


def test_a_page_is_checked_once_and_counted_once_however_often_it_is_asked_for() -> None:
    held = opened(file_of([bytes(40), bytes(60)]))
    assert held.check(np.array([0, 0, 1])).tolist() == [True, True, True]
    assert held.bytes_read == 100
    assert held.check(np.array([1, 0])).tolist() == [False, False]
    assert held.check_one(0) is False
    assert held.bytes_read == 100
