"""Files of pages: what is read is what was written, byte for byte, or it is refused."""

from __future__ import annotations

import mmap
from pathlib import Path

import mmh3
import numpy as np
import pytest

from nile.pyramid.history.pages import _LONG, PageFile, PageWriter, _murmur
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


def test_a_long_page_which_a_kernel_checks_is_told_too_and_has_the_checksum_of_any_other() -> None:
    rng = np.random.default_rng(1)
    page = rng.integers(0, 256, _LONG + 5, np.uint8).tobytes()
    good = file_of([page])
    assert _murmur(memoryview(page)) == mmh3.mmh3_x64_128_digest(page)
    assert bytes(opened(good).page(0)) == page
    at = int(opened(good).at(np.array([0]))[0])
    for bit in rng.integers(0, 8 * len(page), 50).tolist():
        bad = bytearray(good)
        bad[at + bit // 8] ^= 1 << bit % 8
        with pytest.raises(StoreCorrupt, match="page 0: needed checksum"):
            opened(bytes(bad)).page(0)


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


class Advised(mmap.mmap):
    """A map that tells what the disk was asked for: (begin, end) of each time."""

    def madvise(self, option: int, start: int = 0, length: int = 0) -> None:
        assert option == mmap.MADV_WILLNEED
        assert start % mmap.PAGESIZE == 0
        told.append((start, start + length))
        super().madvise(option, start, length)


told: list[tuple[int, int]] = []


def test_the_disk_is_asked_for_what_is_read_and_not_for_what_lies_around_it(tmp_path: Path) -> None:
    path = tmp_path / "pages"
    pages = [bytes([n % 251]) * 10_000 for n in range(400)]
    path.write_bytes(file_of(pages))
    size = path.stat().st_size
    told.clear()
    with path.open("rb") as file:
        held = opened_over(Advised(file.fileno(), 0, access=mmap.ACCESS_READ))
    assert sum(end - begin for begin, end in told) < 300_000  # the start and the footer, of four million bytes
    at = held.at(np.arange(400)).tolist()
    told.clear()
    held.check(np.array([300, 17, 120, 17]))
    assert told == [(at[n] // mmap.PAGESIZE * mmap.PAGESIZE, at[n] + 10_000) for n in (300, 17, 120, 17)]
    told.clear()
    for n in range(50, 90):  # one after the other: ahead of them, and not for each
        assert bytes(held.page(n)) == pages[n]
    assert 3 <= len(told) <= 8
    assert told[0][1] == at[50] + 10_000
    assert all(begin <= at[n] and at[n] + 10_000 <= end
               for n in (50, 70, 89) for begin, end in [max(e for e in told if e[0] <= at[n])])  # fmt: skip
    told.clear()
    assert bytes(held.page(399)) == pages[399]
    assert bytes(held.page(17)) == pages[17]
    assert len(told) == 1
    assert told[0][1] <= size


def opened_over(data: mmap.mmap) -> PageFile:
    return PageFile(memoryview(data), "pages", "here")


def test_pages_that_lie_back_to_back_are_asked_of_the_disk_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = PageWriter()
    body = [writer.start(), *(piece for n in range(6) for piece in writer.page(bytes([n]) * (5_001 + n)))]
    (tmp_path / "pages").write_bytes(b"".join(bytes(piece) for piece in [*body, writer.finish("x", {}, {})]))
    with (tmp_path / "pages").open("rb") as file:
        held = PageFile(memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)), "x", "file")
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(PageFile, "_want", lambda _, begin, end, ahead=0: asked.append((begin, end)))
    held.check_one(2)
    asked.clear()
    at, length = held.extent(np.arange(6))
    held.want(np.array([0, 1, 2, 3, 5]))
    ends = (at + length).tolist()
    assert asked == [(at[0], ends[1]), (at[3], ends[3]), (at[5], ends[5])]
    held.want(np.array([2]))
    assert len(asked) == 3
