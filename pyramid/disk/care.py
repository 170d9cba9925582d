"""Looking after a store: what is in it, whether all of it is as it was written, and what can be saved of it.

Nothing is ever deleted here: what cannot be read is moved to lost/, and a report beside it says what it was.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from nile.pyramid.disk import recovery
from nile.pyramid.disk.files import Files
from nile.pyramid.disk.manifest import FORMAT, MANIFESTS, Generation, now, pack_generation, plain_state
from nile.pyramid.disk.opening import read_current, write_again, write_error
from nile.pyramid.disk.recovery import LOCK, LOST
from nile.summaries.errors import StoreError

__all__ = ["Checked", "Described", "Repaired", "check", "describe", "repair"]


@dataclass(frozen=True, slots=True)
class Described:
    """What a store holds, as its generation in force says.

    roles: per role (files, bytes); tiers: per tier the same: "state", "warm" (data/) and "cold" (lake/).
    """

    path: str
    epoch: int
    written: str
    state: Mapping[str, Any]
    files: int
    bytes: int
    roles: Mapping[str, tuple[int, int]]
    tiers: Mapping[str, tuple[int, int]]
    recovered: str | None
    format: int = FORMAT


@dataclass(slots=True)
class Checked:
    """What `check` found.  epochs: the whole generations, newest first; wrong: what is not as it was written;
    notes: what is worth knowing and harmless; files, bytes: what was read."""

    epochs: list[int] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    files: int = 0
    bytes: int = 0


@dataclass(slots=True)
class Repaired:
    """What `repair` would do, or did.

    action: "nothing" (all is well), "copy" (the newest generation is whole and is written into both places),
    "previous" (back to the one before), "drop" (the newest one without the files that cannot be read), "empty"
    (a state file is lost in both: only an empty store is left).  lost: files by name, with what is wrong with each.
    report: where that was written, once it was done.
    """

    action: str
    epoch: int
    written: str
    lost: dict[str, str]
    reasons: list[str]
    done: bool = False
    report: str | None = None


def describe(path: str | os.PathLike[str], *, files: Files | None = None) -> Described:
    """What a store holds; takes no lock and writes nothing.  Raises as `StoreDirectory.open` for reading does."""
    files = files or Files()
    root = _store(files, path)
    _, (generation, recovered) = read_current(files, root)
    roles: dict[str, tuple[int, int]] = {}
    tiers: dict[str, tuple[int, int]] = {}
    for file in generation.files.values():
        tier = "cold" if file.name.startswith("lake/") else "state" if file.essential else "warm"
        for groups, key in ((roles, file.role), (tiers, tier)):
            count, size = groups.get(key, (0, 0))
            groups[key] = (count + 1, size + file.length)
    return Described(
        root,
        generation.epoch,
        generation.written,
        generation.state,
        len(generation.files),
        sum(file.length for file in generation.files.values()),
        dict(sorted(roles.items())),
        dict(sorted(tiers.items())),
        recovered,
    )


def check(path: str | os.PathLike[str], *, files: Files | None = None) -> Checked:
    """Read every byte of both generations and compare it with what was written.

    Takes no lock, so that a store in use can be looked at; a writer that commits twice meanwhile makes files vanish:
    then what is missing is looked for again in the manifests of that moment.  Cost: all bytes once, about 0.5 GB/s.
    Raises NotAStore, StoreMissing, StoreTooNew, StoreError.
    """
    files = files or Files()
    root = _store(files, path)
    while True:
        found = recovery.read_manifests(files, root)
        checked, _ = _look(files, root, found)
        after = recovery.read_manifests(files, root)
        if not checked.wrong or {g.epoch for g in after.newest_first()} == {g.epoch for g in found.newest_first()}:
            return checked


def _look(files: Files, root: str, found: recovery.Found) -> tuple[Checked, dict[str, str]]:
    """The check of both generations, and what is wrong by file name."""
    checked = Checked(wrong=list(found.damage.values()))
    bad: dict[str, str] = {}
    seen: dict[str, str | None] = {}
    named: set[str] = set()
    for generation in found.newest_first():
        whole = True
        named |= set(generation.files)
        for file in generation.files.values():
            if file.name not in seen:
                seen[file.name] = wrong = recovery.trouble(files, root, file, verify_all=True)
                checked.files += 1
                checked.bytes += file.length
                if wrong is not None:
                    bad[file.name] = wrong
                    checked.wrong.append(wrong)
            whole &= seen[file.name] is None
        if whole:
            checked.epochs.append(generation.epoch)
    left = recovery.leftovers(files, root, named)
    if left:
        readable = "no readable manifest" if found.damage else "no generation"
        checked.notes.append(f"{len(left)} files that {readable} names: left by a crash, or being written now")
    return checked, bad


def repair(path: str | os.PathLike[str], *, do: bool = False, files: Files | None = None) -> Repaired:
    """What can be saved, and with `do` the saving of it.

    The newest whole generation is kept: the newest one, else the one before.  Where neither is whole, the newest one
    whose state files are, without the files that cannot be read: its state then says {"lost": {name: {...}}}, which
    the engine takes for data that was forgotten.  Where no state file can be read, only an empty store is left.
    What cannot be read is moved to lost/, beside lost/report-<time>.json.  Afterwards both manifests describe the
    same, so that nothing damaged is named any more.  Raises StoreLocked (a writer is at work), StoreWriteError.
    """
    files = files or Files()
    root = _store(files, path)
    lock = files.lock(os.path.join(root, LOCK))
    try:
        found = recovery.read_manifests(files, root)
        checked, bad = _look(files, root, found)
        repaired, generation = _plan(found, checked, bad)
        if do and repaired.action != "nothing":
            try:
                _carry_out(files, root, repaired, generation)
            except StoreError:
                raise
            except OSError as error:
                raise write_error("repair", root, error) from error
        return repaired
    finally:
        lock.release()


def _plan(found: recovery.Found, checked: Checked, bad: dict[str, str]) -> tuple[Repaired, Generation]:
    generations = found.newest_first()
    for generation in generations:
        if generation.epoch not in checked.epochs or (generation.epoch == 0 and checked.wrong):
            continue
        newest = generation is generations[0] and not found.damage
        action = "nothing" if not checked.wrong else "copy" if newest else "previous"
        lost = {name: wrong for name, wrong in bad.items() if name not in generation.files}
        if action == "previous":
            newer = {name for g in generations if g.epoch > generation.epoch for name in g.files}
            lost |= dict.fromkeys(newer - set(generation.files) - set(lost), "belongs to a later epoch")
        return Repaired(action, generation.epoch, generation.written, lost, checked.wrong), generation
    for generation in generations:
        essential = [file.name for file in generation.files.values() if file.essential]
        if generation.epoch == 0 or any(name in bad for name in essential):
            continue
        lost = {name: wrong for name, wrong in bad.items() if name in generation.files}
        return Repaired("drop", generation.epoch, generation.written, lost, checked.wrong), generation
    lost = {name: bad.get(name, "its state is lost") for g in generations for name in g.files}
    return Repaired("empty", 0, "", lost, checked.wrong), Generation(0, {}, {})


def _carry_out(files: Files, root: str, repaired: Repaired, generation: Generation) -> None:
    """Move first, then write: stopped in between, the store is no worse, and the same repair can be done again."""
    time = now().replace(":", "-")
    lost = os.path.join(root, LOST)
    if files.is_directory(lost) is None:
        files.make_directory(lost)
        files.sync_directory(root)
    state = dict(generation.state)
    if repaired.action == "drop":
        told = {n: {"role": generation.files[n].role, "length": generation.files[n].length, "why": why}
                for n, why in repaired.lost.items()}  # fmt: skip
        state["lost"] = {**state.get("lost", {}), **told}
    report = {"what": "nile store repair", "when": time, **asdict(repaired), "done": True, "state": generation.state}
    data = json.dumps(report, indent=1, sort_keys=True).encode()
    repaired.report = os.path.join(lost, f"report-{time}.json")
    write_again(files, repaired.report, data)
    kept = {name: file for name, file in generation.files.items() if name not in repaired.lost}
    for name in _to_move(files, root, repaired, kept):
        files.rename(os.path.join(root, name), os.path.join(lost, f"{time}-{name.replace('/', '_')}"))
    if repaired.action == "empty":
        for name in reversed(MANIFESTS):
            with contextlib.suppress(FileNotFoundError):
                files.rename(os.path.join(root, name), os.path.join(lost, f"{time}-{name}"))
        write_again(files, os.path.join(root, MANIFESTS[0]), recovery.first_manifest(now()))
        files.sync_directory(lost)
    for ahead in range({"copy": 1, "previous": 1, "drop": 2}.get(repaired.action, 0)):
        repaired.epoch = generation.epoch + 1 + ahead
        packed = pack_generation(repaired.epoch, plain_state(state)[1], kept.values(), now())
        write_again(files, os.path.join(root, MANIFESTS[repaired.epoch % 2]), packed)
    repaired.done = True


def _to_move(files: Files, root: str, repaired: Repaired, kept: Mapping[str, object]) -> list[str]:
    """The files that go to lost/: what cannot be read and, where a later epoch is given up, all that was only its."""
    names = list(recovery.own_files(files, root))
    if repaired.action in ("previous", "empty"):
        return [name for name in names if name not in kept]
    return [name for name in names if name in repaired.lost]


def _store(files: Files, path: str | os.PathLike[str]) -> str:
    root = os.path.realpath(os.fsdecode(path))
    try:
        if not recovery.is_store(files, root):
            raise recovery.found_missing(root)
    except StoreError:
        raise
    except OSError as error:
        raise recovery.cannot_read(root, error) from error
    return root
