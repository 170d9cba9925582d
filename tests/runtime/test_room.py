"""Memory of large arrays, which serves again (who may have it when: `test_reused.py`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nile.exact.state.lent import filled, roomy, taken
from nile.exact.state.reused import address

LARGE = 50_000


@pytest.mark.parametrize("dtype", [np.int64, np.int8, np.float64])
@pytest.mark.parametrize("n", [0, 1, 10, 16_383, 16_384, 131_072, 1 << 21])
def test_arrays_are_as_long_as_asked_and_may_be_written(n: int, dtype: Any) -> None:
    array = roomy(n, dtype)
    array[:] = 7
    assert (array.shape, array.dtype, int((array == 7).sum())) == ((n,), dtype, n)


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.float64])
@pytest.mark.parametrize("n", [0, 10, 50_000])
def test_full_arrays_and_elements_at_places_are_those_of_numpy(n: int, dtype: Any) -> None:
    for _ in range(2):  # memory that had something else in it
        full = filled(n, -1, dtype)
        assert full.dtype == dtype
        assert full.tolist() == [-1] * n
        full[:] = np.arange(n)
        at = np.random.default_rng(n).integers(0, n, 2 * n)
        of = taken(full, at)
        assert of.dtype == dtype
        assert of.tolist() == full[at].tolist()
        of[:] = 3


def test_elements_of_large_arrays_lie_in_memory_that_serves_again() -> None:
    at = np.arange(LARGE)[::-1]
    for _ in range(1_000):  # what others have given back, for which there may be no more room, is let go
        roomy(LARGE)
    place = address(taken(np.arange(LARGE), at))
    assert place in {address(each) for each in [roomy(LARGE) for _ in range(64)]}
