"""What grows with a stream and what does not."""

from __future__ import annotations

from nile.experiments.benchmarks.summaries.memory import curve


def test_sketches_stay_one_size_and_the_directory_follows_distinct_keys() -> None:
    few = curve(1_000, lengths=(200_000, 800_000), window=20_000)
    many = curve(100_000, lengths=(200_000, 800_000), window=20_000)
    assert len({held.sketches for told in (few, many) for _, held in told.values()}) == 1
    (_, early), (known, late) = few.values()
    assert known == 1_000
    assert late.directory == early.directory
    (fewer, before), (more, after) = many.values()
    assert more > fewer
    assert after.directory > before.directory
    assert late.tuples <= 1.5 * early.tuples
