"""Values numbered by a table of hashes are those a dict numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from nile.exact.state.numbered import Values

KINDS = [
    pa.string(),
    pa.large_string(),
    pa.string_view(),
    pa.binary(),
    pa.large_binary(),
    pa.binary_view(),
    pa.binary(3),
]


def drawn(rng: np.random.Generator, kind: Any, n: int) -> Any:
    if kind == pa.binary(3):
        return pa.array([None if rng.random() < 0.1 else bytes(rng.integers(0, 3, 3).tolist()) for _ in range(n)], kind)
    letters = ["", "a", "ab", "abcdefgh", "abcdefghi", "\0", "é", "x" * 40]
    texts = ["".join(rng.choice(letters, rng.integers(0, 4))) for _ in range(n)]
    return pa.array([None if rng.random() < 0.1 else text for text in texts], pa.string()).cast(kind)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_numbers_are_those_of_a_dict(kind: Any) -> None:
    rng = np.random.default_rng(4)
    values, twin = Values(kind), {}
    for turn in range(30):
        column = drawn(rng, kind, int(rng.integers(0, 200)))
        column = column.slice(int(rng.integers(0, 3)))
        numbers = values.numbers(column)
        for value, number in zip(column.to_pylist(), numbers.tolist(), strict=True):
            if value is None:
                assert number == 0
            else:
                assert twin.setdefault(value, number) == number
        assert sorted(twin.values()) == list(range(len(values)))
        if twin:
            back = values.take(np.array(sorted(twin.values())))
            assert {value: i for i, value in enumerate(back.to_pylist())} == twin
        if turn % 7 == 6:
            live = rng.choice(len(values), len(values) // 2, replace=False)
            table = values.keep(live)
            twin = {value: int(table[number]) for value, number in twin.items() if table[number] >= 0}
            assert len(twin) == len(values) == len(live)


def test_many_values_are_found_again() -> None:
    values = Values(pa.string())
    texts = pa.array([f"item {i}" for i in range(20_000)])
    assert values.numbers(texts).tolist() == list(range(20_000))
    assert values.numbers(texts.take(pa.array(np.arange(20_000)[::-1]))).tolist() == list(range(20_000))[::-1]
    assert values.memory > 20_000 * 20
