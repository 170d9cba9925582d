"""Outliers found by going along each key's tuples: those of the definition, the rarest first, and no others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nile.exact.join.listed import Lists
from nile.operators.strategies import by_key, key_kernels
from nile.operators.strategies.by_key import KeyOutliers

Array = np.ndarray[Any, Any]
_ENDS = np.iinfo(np.int64)


def _streams(seed: int, tuples: int = 40) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    rng = np.random.default_rng(seed)
    ts = [np.sort(rng.integers(0, 60, rng.integers(0, tuples))) for _ in range(2)]
    if seed % 5 == 0:  # as far apart as times can be
        ts = [np.sort(rng.choice([_ENDS.min, _ENDS.min + 2, 0, _ENDS.max - 1, _ENDS.max], 20)) for _ in range(2)]
    codes = [rng.integers(-1, 9, each.shape[0]) for each in ts]
    return (ts[0], ts[1]), (codes[0], codes[1])


def _expected(
    ts: tuple[Array, Array], codes: tuple[Array, Array], window: int | None, cap: int
) -> dict[tuple[int, int], int]:
    """Of each pair of an outlier the tuples that stand around it."""
    arrivals = sorted((int(ts[side][i]), side, i) for side in (0, 1) for i in range(ts[side].shape[0]))
    found: dict[tuple[int, int], int] = {}
    for n, (now, side, i) in enumerate(arrivals):
        around = [
            (other, j)
            for then, other, j in arrivals[: n + 1]
            if codes[other][j] == codes[side][i] >= 0 and (window is None or now - then <= window)
        ]
        partners = [j for other, j in around if other != side]
        if len(around) <= cap:
            found |= {((i, j) if side == 0 else (j, i)): len(around) for j in partners}
    return found


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 10**6), window=st.sampled_from([None, 0, 3, 40]), cap=st.sampled_from([1, 2, 3, 4, 9, 300]),
    room=st.sampled_from([1, 5, 64]),
)  # fmt: skip
def test_the_outliers_are_those_of_the_definition_the_rarest_first(
    seed: int, window: int | None, cap: int, room: int
) -> None:
    ts, codes = _streams(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(by_key, "_ROOM", room)
        found = KeyOutliers(Lists(ts, codes, -1, threads=1), ts, window, pa.array(codes[0] * 7), cap)
        parts = list(found.written(1 << 40))
    left, right, key, left_ts, right_ts = (
        np.concatenate([np.zeros(0, np.int64), *(getattr(part, name) for part in parts)])
        for name in ("left", "right", "key", "left_ts", "right_ts")
    )
    expected = _expected(ts, codes, window, cap)
    got = list(zip(left.tolist(), right.tolist(), strict=True))
    assert sorted(got) == sorted(expected)
    around = [expected[pair] for pair in got]
    assert around == sorted(around)
    assert (key == codes[0][left] * 7).all()
    assert (left_ts == ts[0][left]).all()
    assert (right_ts == ts[1][right]).all()
    few = [pair for part in found.written(3) for pair in zip(part.left.tolist(), part.right.tolist(), strict=True)]
    assert few == got[:3]


def test_the_kernels_do_what_they_do_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    ts, codes = _streams(7, 400)
    lists = Lists(ts, (np.abs(codes[0]), np.abs(codes[1])), -1, threads=1)
    times = [own[at] for own, at in zip(ts, lists.listed, strict=True)]

    def run(tell: Any, write: Any) -> list[Array]:
        room = np.zeros(800, np.int64), np.zeros(800, np.int32)
        told = [np.zeros(801, np.int32) for _ in range(4)]
        n = tell(lists.rows[0], *times, 20, 6, *room, *told)
        at, high, many, standing = (each[:n] for each in told)
        out, progress = np.zeros((5, 60), np.int64), np.zeros(2, np.int64)
        written = write(
            np.arange(n)[::-1].copy(), at, high, many, *times, *lists.listed, codes[0], True, progress, *out
        )  # fmt: skip
        return [at, high, many, standing, out, progress, np.array([n, written])]

    compiled = run(key_kernels.outliers_by_key, key_kernels.write_outliers)
    for part in ("_since", "_is_crowded"):  # which only kernels can call
        monkeypatch.setattr(key_kernels, part, getattr(key_kernels, part).py_func)
    plain = run(key_kernels.outliers_by_key.py_func, key_kernels.write_outliers.py_func)
    assert compiled[-1].tolist()[1] == 60
    assert all((one == other).all() for one, other in zip(compiled, plain, strict=True))
