"""Filters of two sides and rows that wait for one of them: kernels beside plain Python, and what may not be wrong."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from twin_hash import mixed

from nile.exact.state.held import Held
from nile.runtime.recent import NEVER_YET
from nile.runtime.sides import Sides, Waiting
from nile.summaries.errors import EnvelopeError

_MASK = (1 << 64) - 1
_SCHEMA = pa.schema([("k", pa.int64()), ("what", pa.string())])
Array = np.ndarray[Any, Any]


class Twin:
    """Both filters in plain Python: cells are dicts of the end of the tick in which a value was last put there."""

    def __init__(self, window: int | None, cells: int, values: float) -> None:
        self.window, self.size = window, cells
        self.cells: tuple[dict[int, int], dict[int, int]] = ({}, {})
        self.many = max(1, min(4, round(0.69 * cells / max(values, 1.0))))
        self.pause = 1 << 62 if window is None else max(1, window // 64)
        self.tick = 1 if window is None else math.ceil((window + 2) / 32_768)
        self.live, self.due, self.gone = [0, 0], [NEVER_YET, NEVER_YET], [0, 0]

    def places(self, value: int, side: int) -> list[int]:
        first = mixed(value ^ side * 0xD1B54A32D192ED03)
        step = mixed((first + 0x9E3779B97F4A7C15) & _MASK) | 1
        return [(first + k * step) & _MASK & (self.size - 1) for k in range(self.many)]

    def last(self, value: int, side: int) -> int:
        return min(self.cells[side].get(at, NEVER_YET) for at in self.places(value, side))

    def within(self, last: int, now: int, back: int) -> bool:
        return last > NEVER_YET and (self.window is None or last >= now - back)

    def seems(self, now: int, side: int) -> float:
        living = self.live[side] - self.gone[side] * (1.0 - (self.due[side] - now) / self.pause)
        return float((living / self.size) ** self.many)

    def put(self, now: int, some: list[tuple[int, int]]) -> list[tuple[Any, ...]]:
        """(side, value) of one instant."""
        span = 0 if self.window is None else self.window
        for side in (0, 1):
            if now >= self.due[side]:
                for at, each in list(self.cells[side].items()):
                    if not self.within(each, now, span + 1):
                        del self.cells[side][at]
                live = len(self.cells[side])
                self.gone[side] = self.live[side] - live if now - self.due[side] < self.pause else 0
                self.live[side], self.due[side] = live, (now // self.pause + 1) * self.pause
        before = [
            (
                not self.within(self.last(value, side), now, span + 1),
                self.within(self.last(value, 1 - side), now, span + 1),
                self.seems(now, side),
            )
            for side, value in some
        ]
        for side, value in some:
            for at in self.places(value, side):
                self.live[side] += not self.within(self.cells[side].get(at, NEVER_YET), now, span + 1)
                self.cells[side][at] = NEVER_YET + 1 if self.window is None else math.ceil(now / self.tick) * self.tick
        out = []
        for (side, value), (new, was, own) in zip(some, before, strict=True):
            since = min(now, self.last(value, 1 - side))
            out.append((new, self.within(since, now, span), was, since, own, self.seems(now, 1 - side)))
        return out


def _values(seed: int, n: int, different: int) -> tuple[Array, Array, Array]:
    draw = np.random.default_rng(seed)
    sides = draw.integers(0, 2, n).astype(np.int8)
    values = draw.integers(0, different, n).astype(np.uint64) * np.uint64(2**40 + 7)
    return np.cumsum(draw.integers(0, 3, n)), sides, values


def _columns(looked: Any) -> list[Array]:
    return [looked.new, looked.there, looked.was, looked.since, looked.own, looked.other]


@pytest.mark.parametrize(
    ("window", "scale"), [(400, 1), (2, 1), (None, 1), (40_000, 100), (32_000, 80), (4_000_000, 10_007)]
)
def test_the_kernel_is_its_twin_however_values_are_cut_between_instants(window: int | None, scale: int) -> None:
    """In ticks of 1, 2 and 123 ns, which begin anew two to five times; and over a long time without values."""
    ts, sides, hashes = _values(1, 2_000, 150)
    ts = scale * ts - 1_000 + np.where(np.arange(2_000) >= 1_700, 70_001 * scale, 0)
    twin, whole, cut = Twin(window, 128, 60), Sides(window, 128, 60), Sides(window, 128, 60)
    wanted: list[tuple[Any, ...]] = []
    for now in np.unique(ts):
        some = [(int(s), int(v)) for s, v in zip(sides[ts == now], hashes[ts == now], strict=True)]
        wanted += twin.put(int(now), some)
    found = _columns(whole.put(ts, sides, hashes))
    for k, column in enumerate(found):
        assert column.tolist() == (
            pytest.approx([each[k] for each in wanted]) if column.dtype == np.float64 else [each[k] for each in wanted]
        )
    ends = [0, *(at for at in (600, 601, 1_500) if ts[at] != ts[at - 1]), 2_000]
    parts = [_columns(cut.put(ts[a:b], sides[a:b], hashes[a:b])) for a, b in pairwise(ends)]
    for k, column in enumerate(found):
        assert np.concatenate([each[k] for each in parts]).tolist() == column.tolist()


@pytest.mark.parametrize("window", [300, 0, None])
@pytest.mark.parametrize("cells", [64, 1 << 14])
def test_what_seems_gone_is_gone_and_how_often_what_is_gone_seems_to_be_there_is_known(
    cells: int, window: int | None
) -> None:
    ts, sides, hashes = _values(2, 6_000, 400)
    looked = Sides(window, cells, 150).put(ts, sides, hashes)
    span = 1 << 40 if window is None else window
    last: dict[tuple[int, int], int] = {}
    own, there = np.zeros(ts.size, bool), np.zeros(ts.size, bool)
    for now in np.unique(ts):
        at = np.flatnonzero(ts == now)
        for i in at:
            own[i] = last.get((int(sides[i]), int(hashes[i])), -(1 << 50)) >= now - span - 1
        last.update({(int(sides[i]), int(hashes[i])): int(now) for i in at})
        for i in at:
            there[i] = last.get((1 - int(sides[i]), int(hashes[i])), -(1 << 50)) >= now - span
    assert not (looked.new & own).any()
    assert not (~looked.there & there).any()
    if cells > 64:
        assert looked.new.sum() >= 0.98 * (~own).sum()
        assert (~looked.there).sum() >= 0.98 * (~there).sum()
    elif window:  # without one, what is in the window and what is known are not the same
        wrong = (looked.there & ~there).sum()
        assert wrong == pytest.approx(looked.other[~there].sum(), abs=5 + 4 * np.sqrt(wrong))


def test_filters_that_were_captured_go_on_alike_and_altered_ones_are_refused() -> None:
    ts, sides, hashes = _values(3, 2_000, 300)
    one = Sides(500, 256, 100)
    one.put(ts[:1_000], sides[:1_000], hashes[:1_000])
    state = one.capture()
    other = Sides.restored(Held(state, "filters"), 500)
    assert other.memory == one.memory == 4 * 256 + 64
    for mine, theirs in zip(
        *(_columns(each.put(ts[1_000:], sides[1_000:], hashes[1_000:])) for each in (one, other)), strict=True
    ):
        assert mine.tolist() == theirs.tolist()
    for name, value in (("size", 255), ("hashes", 9), ("state", np.full((2, 4), 900)), ("cells", np.zeros((2, 3)))):
        with pytest.raises(EnvelopeError):
            Sides.restored(Held({**state, name: value}, "filters"), 500)


def _rows(values: Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(values), pa.array([f"v{k}" for k in values])], schema=_SCHEMA)


class Waits:
    """Rows that wait, in plain Python: of each when it was last on either side, and what it stands for."""

    def __init__(self, window: int) -> None:
        self.window, self.held = window, dict[int, tuple[list[int], float]]()

    def until(self, before: int) -> list[tuple[int, int, float]]:
        due = sorted((last[1] + self.window + 1, value) for value, (last, _) in self.held.items())
        gone = [(at, value, *self.held.pop(value)) for at, value in due if at < before]
        return [(at, value, stands) for at, value, last, stands in gone if last[0] >= at - self.window]

    def come(
        self, now: int, side: int, begins: bool, value: int, since: int, worth: float
    ) -> list[tuple[int, int, float]]:
        told = self.until(now)
        if begins or value in self.held:
            self.held.setdefault(value, ([-(1 << 40), since], worth))[0][side] = now
        return told


@pytest.mark.parametrize("cut", [1, 7, 400])
def test_rows_wait_until_the_right_lets_go_as_in_plain_python(cut: int) -> None:
    draw = np.random.default_rng(cut)
    window, n = 40, 1_200
    ts = np.cumsum(draw.integers(0, 3, n))
    sides, values = draw.integers(0, 2, n).astype(np.int8), draw.integers(0, 60, n)
    since, begins = ts - draw.integers(0, window + 1, n), draw.random(n) < 0.5
    worth = 1.0 + draw.random(n)
    twin, made = Waits(window), Waiting(_SCHEMA, window)
    came_back = 0
    for begin in range(0, n, 400):
        wanted: list[tuple[int, int, float]] = []
        found: list[tuple[int, int, float]] = []
        for i in range(begin, begin + 400):
            wanted += twin.come(
                int(ts[i]), int(sides[i]), bool(begins[i]), int(values[i]), int(since[i]), float(worth[i])
            )
        wanted += twin.until(int(ts[begin + 399]) + 1)
        for first in range(begin, begin + 400, cut):
            part = slice(first, min(first + cut, begin + 400))
            done = int(ts[part][-1]) if part.stop == begin + 400 else int(ts[part][-1]) - 1
            hashes = values[part].astype(np.uint64)
            at, rows, whose, stands = made.come(
                ts[part], sides[part], begins[part], hashes, since[part], worth[part], _rows(values[part]), done
            )
            assert rows.column(1).to_pylist() == [f"v{k}" for k in rows.column(0).to_pylist()]
            assert whose.tolist() == rows.column(0).to_pylist()
            found += list(zip(at.tolist(), rows.column(0).to_pylist(), stands.tolist(), strict=True))
        assert sorted(found) == sorted(wanted)
        assert [each[0] for each in found] == sorted(each[0] for each in found)
        assert len(made) == len(twin.held)
        came_back += len(found)
        made = Waiting.restored(Held(made.capture(), "rows that wait"), _SCHEMA, window)
    assert came_back > 50


def test_a_share_of_the_rows_may_go_on_waiting_and_altered_states_are_refused() -> None:
    made = Waiting(_SCHEMA, 10)
    values = np.arange(100)
    zeros = np.zeros(100, np.int64)
    made.come(
        values, zeros.astype(np.int8), zeros == 0, values.astype(np.uint64), values, zeros + 1.0, _rows(values), -1
    )
    held = made.memory
    assert len(made) == 12  # before the last came, the right had let go of 88
    made.keep(lambda hashes: hashes % np.uint64(2) == 0)
    assert len(made) == 6
    none = zeros[:0]
    at, rows, _, _ = made.come(
        none, none.astype(np.int8), none == 0, none.astype(np.uint64), none, none + 1.0, _rows(none), 200
    )
    assert (at.tolist(), rows.num_rows, len(made)) == ([], 0, 0)  # by then the left had gone, too
    assert held == made.memory
    state = {
        "rows": _rows(np.array([1, 1])),
        "left": zeros[:2],
        "right": zeros[:2],
        "hash": zeros[:2],
        "stands": zeros[:2] + 1.0,
    }
    with pytest.raises(EnvelopeError, match="differ"):
        Waiting.restored(Held(state, "rows that wait"), _SCHEMA, 10)
    with pytest.raises(EnvelopeError, match="times"):
        Waiting.restored(Held({**state, "left": zeros[:2] + NEVER_YET}, "rows that wait"), _SCHEMA, 10)
