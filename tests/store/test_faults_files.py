"""What forged files revealed: claims that checksums agree with are still looked at before they are used."""

from __future__ import annotations

import struct
from functools import partial
from pathlib import Path

import mmh3
import numpy as np
import pyarrow as pa
import pytest

from nile.experiments.faults.table import FAULTS
from nile.pyramid.disk.directory import StoreDirectory
from nile.pyramid.grid.manager import SummaryManager
from nile.pyramid.grid.manager_state import manager_bytes, read_manager
from nile.pyramid.grid.spec import SummarySpec
from nile.pyramid.history.history import History
from nile.pyramid.history.pages import PageFile, PageWriter
from nile.pyramid.history.warm_index import WarmIndex
from nile.pyramid.history.zone_file import KIND
from nile.summaries.envelope import pack, unpack
from nile.summaries.errors import EnvelopeError, StoreCorrupt
from nile.summaries.sampled import Reservoir
from nile.summaries.schemas import schema_from_json, schema_to_json

pytestmark = pytest.mark.faults

SCHEMA = pa.schema([("k", pa.int64())])
_FINISH = struct.Struct("<Q8s")


def zone(path: Path) -> tuple[bytes, History]:
    """The bytes of a zone file of 512 rows with 64 keys."""
    with StoreDirectory.open(path) as directory:
        history = History("h", SCHEMA, directory=directory, indexed=["k"], memory=1, segment=512, largest=512)
        keys = pa.record_batch([pa.array([i % 64 for i in range(512)], pa.int64())], schema=SCHEMA)
        history.append(np.arange(512, dtype=np.int64), keys)
        history.settle()
        (index,) = (index for index in history.indices("k") if isinstance(index, WarmIndex))
        return directory.read(index.file).tobytes(), history


def rewritten(data: bytes, page: int, change: bytes | None, claimed: int) -> bytes:
    """A file of pages with other bytes in a page and a claimed unpacked length, every checksum right."""
    length, end = _FINISH.unpack(data[-_FINISH.size :])
    footer = unpack(data[-_FINISH.size - length : -_FINISH.size])
    pages = bytearray(data[: -_FINISH.size - length])
    table, digests = footer.arrays["page.table"].copy(), footer.arrays["page.sum"].copy()
    at, size, _ = table[page].tolist()
    table[page, 2] = claimed
    if change is not None:
        pages[at : at + size] = change.ljust(size, b"\0")[:size]
    digests[page] = np.frombuffer(mmh3.mmh3_x64_128_digest(bytes(pages[at : at + size])), np.uint8)
    arrays = {**footer.arrays, "page.table": table, "page.sum": digests}
    made = pack(footer.kind, footer.params, arrays)
    return bytes(pages) + made + _FINISH.pack(len(made), end)


@pytest.mark.parametrize("what", ["places that fall", "hashes that fall", "places beyond the index"])
@pytest.mark.parametrize("how", ["look up", "part"])
def test_a_directory_page_with_entries_out_of_order_is_refused_before_they_are_used(
    tmp_path: Path, what: str, how: str
) -> None:
    data, _ = zone(tmp_path / "good")
    held = PageFile(memoryview(data), KIND, "zone")
    number = int(held.footer.arrays["directory"][0])
    page = bytes(held.page(number))
    hashes, starts = np.frombuffer(page[: 8 * 64], "<u8").copy(), np.frombuffer(page[8 * 64 :], "<u4").copy()
    if what == "places that fall":
        starts[20], starts[21] = 500, 3
    elif what == "hashes that fall":
        hashes[20] = hashes[30] + np.uint64(1)
    else:
        starts[-1] = 1 << 31
    forged = rewritten(data, number, hashes.tobytes() + starts.tobytes(), 0)
    with StoreDirectory.open(tmp_path / "bad") as directory:
        index = WarmIndex(directory, directory.stage("zone", forged))
        asked = np.concatenate([hashes, hashes + np.uint64(1)])
        use = partial(index.part, 0, 1, 1) if how == "part" else partial(index.look_up, asked)
        with pytest.raises(StoreCorrupt, match=r"directory"):
            use()


def test_a_packed_page_that_claims_more_than_it_can_hold_is_refused_before_memory_is_taken() -> None:
    writer = PageWriter()
    body = [writer.start(), *writer.page(bytes(10_000), squeeze=True)]
    data = b"".join(bytes(piece) for piece in [*body, writer.finish("pages", {}, {})])
    assert len(PageFile(memoryview(data), "pages", "good").page(0)) == 10_000
    bomb = PageFile(memoryview(rewritten(data, 0, None, 2_000_000_000)), "pages", "bomb")
    with pytest.raises(StoreCorrupt, match="at most 255 bytes of each packed one; got 2000000000"):
        bomb.page(0)


def test_a_summary_that_claims_more_counters_than_it_has_is_refused_before_they_are_made() -> None:
    manager = SummaryManager(SummarySpec(10**9, buckets=4, columns=16))
    manager.ingest(np.arange(50, dtype=np.int64), pa.array([f"k{i % 9}" for i in range(50)]))
    good = unpack(manager_bytes(manager))
    huge = unpack(pack(good.kind, {**good.params, "spec": {**good.params["spec"], "columns": 1 << 17}}, good.arrays))
    with pytest.raises(EnvelopeError, match="counters"):
        read_manager(huge)
    assert read_manager(good).store.tuples == 50


def test_a_name_that_is_no_text_is_refused() -> None:
    fields = schema_to_json(SCHEMA)
    with pytest.raises(EnvelopeError, match="needed a name without halves of surrogate pairs; got"):
        schema_from_json([{**fields[0], "name": "k\ud800"}])
    assert schema_from_json(fields) == SCHEMA


@pytest.mark.parametrize("seed", [10_501, 16_527])
def test_seeds_of_forged_files_that_once_failed_hold(seed: int) -> None:
    """An array's type that is a list; draws of a reservoir past the largest machine word."""
    FAULTS["forged-files"].attempt(seed)


def test_a_reservoir_that_has_drawn_more_often_than_a_word_can_count_goes_on_drawing() -> None:
    made = Reservoir(8)
    good = unpack(made.to_bytes())
    for drawn in (2**62, 2**63 - 2, 2**64 - 1, 2**70):
        far = Reservoir.from_bytes(pack(good.kind, {**good.params, "drawn": drawn}, good.arrays))
        far.summarize(np.arange(40, dtype=np.uint64))
        assert far.keys.shape[0] == 8
