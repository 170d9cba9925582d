"""The application of STEAM, section 7: boxes before detectors, and how often what is told of them is right."""

from __future__ import annotations

import numpy as np

from nile.experiments.examples.hazmat.__main__ import main
from nile.experiments.examples.hazmat.boxes import LONGEST, boxes, database
from nile.experiments.examples.hazmat.decide import EXPOSURES, fixed, rates_of, sequential
from nile.experiments.examples.hazmat.spectra import ENERGIES, LIBRARY, LINES, rates


def test_more_exposure_tells_more_and_being_sure_costs_less_than_the_longest() -> None:
    held = boxes(150, 5)
    told = fixed(held, 5)
    curve = [rates_of(held, told[each], [each] * len(held)) for each in EXPOSURES]
    assert curve[0].detected < curve[-1].detected
    assert curve[-1].detected >= 0.97
    assert curve[-1].false_alarms <= 0.03
    assert max(each.confused for each in curve[1:]) <= 0.02
    said = sequential(held, 5)
    sure = rates_of(held, [match for match, _ in said], [seconds for _, seconds in said])
    assert sure.detected >= curve[-1].detected - 0.03
    assert sure.false_alarms <= curve[-1].false_alarms + 0.03
    assert sure.seconds < LONGEST / 2


def test_the_same_boxes_are_told_the_same_however_their_detectors_take_turns() -> None:
    held = boxes(40, 2)
    assert sequential(held, 2) == sequential(held, 2)
    assert fixed(held, 2) == fixed(held, 2)


def test_the_lines_of_a_long_spectrum_are_peaks() -> None:
    for material in LIBRARY:
        db = database([], 0)
        counts = np.random.default_rng(1).poisson(rates(material, 0.0, 20_000.0))
        db.register("spectrum", {"ts": np.arange(len(counts)).astype(float), "counts": counts.astype(float)}, time="ts")
        text = "SELECT at, prominence FROM PEAKS (spectrum, counts, prominence => 150, smooth => 1.5, span => 41) AS p"
        found = [ENERGIES[round(at.timestamp())] for at, _ in db.sql(text).fetchall()]
        main_lines = [energy for energy, share in LINES[material].items() if share > 0.4]
        assert found
        for energy in main_lines:
            assert min(abs(energy - each) for each in found) < 20


def test_the_report_prints_a_row_for_each_exposure(capsys: object) -> None:
    main(["20", "3"], standalone_mode=False)
    printed = capsys.readouterr().out  # type: ignore[attr-defined]
    assert printed.count(" s each") == len(EXPOSURES)
    assert "until sure" in printed
