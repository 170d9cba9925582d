"""What any released version wrote is read by this one; what a newer one wrote is refused with a message."""

from __future__ import annotations

import hashlib
import shutil
import struct
from pathlib import Path

import pytest
from golden_files import FORMS, GOLDEN, STORE, read_store, write_store

from nile.pyramid.disk import StoreDirectory
from nile.summaries.envelope import VERSION, unpack
from nile.summaries.errors import EnvelopeTooNew, StoreTooNew

VERSIONS = range(1, VERSION + 1)
_PREFIX = struct.Struct("<8sIIQ8x32s")


def of_version(data: bytes, version: int) -> bytes:
    """The same envelope, intact, as another version would have signed it."""
    magic, _, header, body, _ = _PREFIX.unpack_from(data)
    start = _PREFIX.pack(magic, version, header, body, bytes(32))[:32]
    rest = data[_PREFIX.size :]
    return start + hashlib.blake2b(start + rest, digest_size=32).digest() + rest


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_has_its_files(version: int) -> None:
    assert (GOLDEN / f"v{version}/store/manifest-1").is_file()
    there = {file.name for file in (GOLDEN / f"v{version}").glob("*.nile")}
    assert {"envelope.nile", "manifest.nile"} <= there
    if version == VERSION:
        assert there >= set(FORMS), "run `python tests/harness/golden_files.py`"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", sorted(FORMS))
def test_a_golden_file_says_what_it_always_said(version: int, name: str) -> None:
    file = GOLDEN / f"v{version}" / name
    if not file.exists():
        assert version < VERSION  # a kind that came later
        return
    assert FORMS[name].read(file.read_bytes()) == FORMS[name].expected()


@pytest.mark.parametrize("name", sorted(name for name, form in FORMS.items() if form.same))
def test_a_byte_form_does_not_change_without_a_new_version(name: str) -> None:
    assert FORMS[name].write() == (GOLDEN / f"v{VERSION}" / name).read_bytes()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_golden_store_is_read_and_written_on(version: int, tmp_path: Path) -> None:
    golden = GOLDEN / f"v{version}/store"
    assert read_store(golden) == STORE
    path = Path(shutil.copytree(golden, tmp_path / "store"))
    with StoreDirectory.open(path) as store:
        assert store.commit({**store.state, "n": 4}, store.files().values()) == 4
    with StoreDirectory.open(path) as store:
        assert (store.epoch, store.state["n"]) == (4, 4)
        assert all(store.read(file) is not None for file in store.files().values())


def test_a_store_does_not_change_its_form_without_a_new_version(tmp_path: Path) -> None:
    write_store(tmp_path / "store")
    golden = GOLDEN / f"v{VERSION}/store"
    names = {file.relative_to(golden) for file in golden.rglob("*") if file.is_file()}
    made = {file.relative_to(tmp_path / "store") for file in (tmp_path / "store").rglob("*") if file.is_file()}
    assert made - {Path("LOCK")} == names
    assert all((golden / name).read_bytes() == (tmp_path / "store" / name).read_bytes() for name in names)


@pytest.mark.parametrize("name", sorted(name for name in FORMS if name != "pages.nile"))
def test_the_next_version_is_refused_with_a_message(name: str) -> None:
    data = of_version((GOLDEN / f"v{VERSION}" / name).read_bytes(), VERSION + 1)
    message = rf"{name}: needed version {VERSION} or older; got version {VERSION + 1}; upgrade Nile to read it"
    with pytest.raises(EnvelopeTooNew, match=message):
        unpack(data, where=name)
    assert unpack(of_version(data, VERSION)).kind


@pytest.mark.parametrize("manifest", ["manifest-0", "manifest-1"])
def test_a_store_with_one_manifest_of_the_next_version_is_refused(manifest: str, tmp_path: Path) -> None:
    path = Path(shutil.copytree(GOLDEN / f"v{VERSION}/store", tmp_path / "store"))
    (path / manifest).write_bytes(of_version((path / manifest).read_bytes(), VERSION + 1))
    for read_only in (False, True):
        with pytest.raises(StoreTooNew, match=f"{manifest}: needed version {VERSION} or older; got .*; upgrade Nile"):
            StoreDirectory.open(path, read_only=read_only)


def test_a_file_of_the_next_version_in_a_store_of_this_one_is_refused(tmp_path: Path) -> None:
    with StoreDirectory.open(tmp_path) as store:
        newer = store.stage("zone", of_version((GOLDEN / f"v{VERSION}/envelope.nile").read_bytes(), VERSION + 1))
        with pytest.raises(StoreTooNew, match=f"-zone: needed version {VERSION} or older; .*; upgrade Nile"):
            store.read_envelope(newer)
