"""A process that commits a counter and files made from it, for ever: `python tests/harness/child_store.py PATH`."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from nile.pyramid.disk import StoredFile, StoreDirectory


def content(counter: int, part: int) -> bytes:
    """The bytes of one file: a function of the counter."""
    return hashlib.shake_128(f"{counter}.{part}".encode()).digest(1000 + 37 * (counter % 50) + part)


def pieces(data: bytes) -> Iterator[bytes]:
    """In writes of odd sizes, so that a kill finds a file half written."""
    for at in range(0, len(data), 300):
        yield data[at : at + 300]


def kept(store: StoreDirectory) -> list[tuple[StoredFile, int, int]]:
    """The files of the generation in force, with what they were made from."""
    return [(store.files()[name], counter, part) for name, counter, part in store.state.get("made", [])]


def step(store: StoreDirectory) -> int:
    """The next commit: two new files, a state file, and of the older ones those whose turn has not come."""
    counter = int(store.state.get("counter", 0)) + 1
    made = [entry for entry in kept(store) if entry[1] + entry[2] + 2 > counter]
    made += [(store.stage("zone", pieces(content(counter, part))), counter, part) for part in (0, 1)]
    if counter % 5 == 0:
        with store.stage_path("cold", suffix=".bin", folder=f"lake/c={counter // 50}") as staged:
            staged.path.write_bytes(content(counter, 7))
        made.append((staged.file, counter, 7))
    state = store.stage_envelope("state", "counter", {"counter": counter}, {"squares": np.arange(counter % 100) ** 2})
    rows: list[Any] = [[file.name, of, part] for file, of, part in made]
    store.commit({"counter": counter, "made": rows, "file": state.name}, [state, *(file for file, _, _ in made)])
    return counter


def verify(path: Path) -> int:
    """Everything in force is what it was made from; the counter."""
    with StoreDirectory.open(path) as store:
        assert store.recovered is None
        counter = int(store.state.get("counter", 0))
        assert store.epoch == counter
        if counter:
            held = store.read_envelope(store.files()[store.state["file"]])
            assert held.params["counter"] == counter
            assert np.array_equal(held.arrays["squares"], np.arange(counter % 100) ** 2)
        assert len(store.files()) == len(kept(store)) + (counter > 0)
        for file, of, part in kept(store):
            assert of <= counter
            assert bytes(store.read(file)) == content(of, part)
        return counter


def main() -> None:
    """Commit until killed."""
    with StoreDirectory.open(sys.argv[1]) as store:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while True:
            counter = step(store)
            sys.stdout.write(f"{counter}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
