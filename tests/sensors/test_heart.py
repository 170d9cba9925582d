"""Hearts that stream: what is told of simulated electrocardiograms is what was laid into them."""

from __future__ import annotations

import numpy as np

from nile.experiments.examples.heart.__main__ import main
from nile.experiments.examples.heart.beats import RATE, database, record
from nile.experiments.examples.heart.watch import beats, early, rates_of, seconds_per_beat


def test_beats_rates_and_early_beats_are_told() -> None:
    seeds = [11, 12, 13]
    records = [record(each, 45, 0.05) for each in seeds]
    assert sum(int(one.early.sum()) for one in records) >= 3
    rates = rates_of(records, beats(database(seeds, 45, 0.05), 3), seconds_per_beat(database(seeds, 45, 0.05), 3))
    assert rates.found >= 0.99
    assert rates.false <= 0.01
    assert rates.early >= 0.99
    assert rates.wrong <= 0.05
    assert rates.worst <= 0.03


def test_the_same_beats_are_found_at_once_and_as_they_stream() -> None:
    text = "SELECT at FROM PEAKS (ecg, level, prominence => 0.55, smooth => 1.2, span => 101) AS p"
    db = database([], 1, 0.0)
    level = record(3, 40, 0.1).level
    db.register("ecg", {"ts": np.arange(len(level)) / RATE, "level": level}, time="ts")
    at_once = [at.timestamp() for (at,) in db.sql(text).fetchall()]
    (streamed,) = beats(database([3], 40, 0.1), 1)
    assert np.allclose(streamed, at_once)
    assert len(streamed) > 30


def test_an_interval_is_early_beside_those_before_it() -> None:
    regular = [0.8 * k for k in range(12)]
    assert early(regular) == []
    assert early([*regular, regular[-1] + 0.5, regular[-1] + 1.6]) == [regular[-1] + 0.5]
    assert early([0.0, 0.3]) == []


def test_the_report_prints_a_row_for_each_noise(capsys: object) -> None:
    main(["1", "2", "30"], standalone_mode=False)
    assert capsys.readouterr().out.count("%") >= 20  # type: ignore[attr-defined]
