"""What workers of Spark hold is set aside from the collector once, and what tasks leave behind is still found."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from nile.spark import settling
from nile.spark.settling import settle_worker


class Knot:
    """Garbage that only the collector finds."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture(autouse=True)
def thawed() -> Iterator[None]:
    """Nothing frozen but what the session has frozen: that is thawed and frozen again."""
    gc.collect()
    gc.unfreeze()
    yield
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def test_a_worker_sets_aside_what_it_has_loaded_and_finds_garbage_that_comes_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SPARK_REUSE_WORKER", "1")
    loaded = [Knot() for _ in range(settling._MANY)]
    settle_worker()
    held = gc.get_freeze_count()
    assert held > settling._MANY
    assert len(gc.get_objects()) < settling._MANY
    knot, kept = weakref.ref(Knot()), Knot()
    settle_worker()  # too little has come, so nothing of it is set aside
    assert any(each is kept for each in gc.get_objects())
    assert gc.get_freeze_count() <= held  # what other threads let go of is gone
    gc.collect()
    assert knot() is None
    assert len(loaded) == settling._MANY


def test_garbage_is_not_set_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_REUSE_WORKER", "1")
    gc.disable()
    try:
        knots = [weakref.ref(Knot()) for _ in range(settling._MANY)]
        settle_worker()
    finally:
        gc.enable()
    assert not any(knot() for knot in knots)


def test_a_process_that_is_no_worker_of_spark_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_REUSE_WORKER", raising=False)
    settle_worker()
    assert gc.get_freeze_count() == 0
