"""Places at which the interpreter lets signals' handlers run, and processes forked for attempts."""

from __future__ import annotations

import signal
from functools import partial
from pathlib import Path

import pytest

import nile
from nile.base.interrupts import INTERRUPTS
from nile.experiments.faults.changes.forks import Forked, spent
from nile.experiments.faults.places import at_place

_NILE = ("nile.experiments.cli:main", "nile.experiments.faults.changes.served:warm")


def _inner(done: list[int], n: int) -> None:
    done.append(n)


def _action(done: list[int]) -> None:
    for n in range(5):
        _inner(done, n)


def _raise() -> None:
    raise KeyError("here")


def test_an_action_is_cut_at_each_place_in_turn_and_at_no_other() -> None:
    for _ in range(100):  # the interpreter's own instructions for what is often done have fewer places
        _action([])
    places = at_place(partial(_action, []), None, _raise)
    assert places == at_place(partial(_action, []), None, _raise) > 10
    reached = []
    for at in range(places):
        done: list[int] = []
        with pytest.raises(KeyError, match="here"):
            at_place(partial(_action, done), at, _raise)
        reached.append(len(done))
    assert reached == sorted(reached)
    assert set(reached) == {0, 1, 2, 3, 4, 5}
    done = []
    assert at_place(partial(_action, done), places, _raise) == places
    assert done == [0, 1, 2, 3, 4]


def test_files_are_spared_and_blocks_that_delay_interrupts_are_not() -> None:
    assert at_place(lambda: _action([]), None, _raise, ("store/test_places.py",)) == 0

    def guarded() -> None:
        with INTERRUPTS:
            _action([])

    assert at_place(guarded, None, _raise) >= at_place(lambda: _action([]), None, _raise)
    came: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda *_: came.append(len(done)))
    try:
        for at in range(at_place(guarded, None, _raise)):
            done: list[int] = []

            def whole() -> None:
                with INTERRUPTS:
                    _action(done)  # noqa: B023 - called at once

            at_place(whole, at, lambda: signal.raise_signal(signal.SIGUSR1))
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert set(came) == {0, 5}


def test_the_handler_that_was_there_is_there_again() -> None:
    handlers = [signal.getsignal(number) for number in sorted(signal.valid_signals())]
    with pytest.raises(KeyError):
        at_place(lambda: _action([]), 3, _raise)
    assert handlers == [signal.getsignal(number) for number in sorted(signal.valid_signals())]


@pytest.mark.slow
def test_a_forked_program_prints_ends_and_is_killed_like_any_process(tmp_path: Path) -> None:
    with (tmp_path / "errors").open("w") as errors:
        one = Forked(*_NILE, ["--version"], errors)
        assert nile.__version__ in one.stdout.read()
        assert one.wait() == 0
        one.send_signal(signal.SIGTERM)
        other = Forked(*_NILE, ["store", "info", str(tmp_path / "none")], errors)
        assert other.wait() == 2
        token = tmp_path / "token"
        serving = ["serve", str(tmp_path / "store"), "--port", "0", "--token-file", str(token)]
        third = Forked(*_NILE, serving, errors)
        assert "serving" in third.stdout.readline()
        third.kill()
        assert third.wait() == -signal.SIGKILL
    assert "none" in (tmp_path / "errors").read_text()
    assert spent() > 0
