"""Gamma spectra of materials and of the background, as a scintillation detector would count them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ["BACKGROUND", "ENERGIES", "LIBRARY", "LINES", "WEIGHTS", "prepared", "rates"]

Array = np.ndarray[Any, Any]

ENERGIES: Array = np.linspace(20.0, 1600.0, 128)
"""keV in the middle of each channel."""
LINES: Mapping[str, Mapping[float, float]] = {
    "americium-241": {59.5: 1.0},
    "barium-133": {81.0: 0.5, 302.9: 0.28, 356.0: 0.94},
    "caesium-137": {661.7: 1.0},
    "cobalt-60": {1173.2: 1.0, 1332.5: 1.0},
    "iridium-192": {316.5: 1.0, 468.1: 0.58, 308.5: 0.36, 604.4: 0.1},
    "iodine-131": {364.5: 1.0, 637.0: 0.09, 284.3: 0.07},
    "manganese-54": {834.8: 1.0},
}
"""Energy (keV) and share of each line of the decay; the last two are in no library, as a trial of what is unknown."""
LIBRARY = tuple(LINES)[:5]
_RESOLUTION = 0.07
"""Width (full, at half height) of a line at 662 keV, as a share of it; it goes with the root of the energy."""


def _peaks(lines: Mapping[float, float]) -> Array:
    counts = np.zeros(len(ENERGIES))
    for energy, share in lines.items():
        width = _RESOLUTION * np.sqrt(661.7 * energy) / 2.355
        counts += share * np.exp(-0.5 * ((ENERGIES - energy) / width) ** 2) / width
        edge = energy / (1 + 511.0 / (2 * energy))  # Compton
        counts += share * 0.3 * (energy - edge > ENERGIES) / energy
    return counts


def rates(material: str | None, background: float, signal: float) -> Array:
    """Expected counts per second in each channel, from so many per second of both in all."""
    found = background * BACKGROUND
    if material is not None:
        shape = _peaks(LINES[material])
        found = found + signal * shape / shape.sum()
    return found


BACKGROUND: Array = np.exp(-ENERGIES / 350.0) + 0.02 * _peaks({1460.8: 30.0})
"""Shape of the background: a continuum and potassium-40."""
BACKGROUND = BACKGROUND / BACKGROUND.sum()
WEIGHTS: Array = 1.0 / np.sqrt(BACKGROUND)
"""What makes the noise of all channels alike."""


def prepared(counts: Array, expected: Array) -> Array:
    """Counts without the background that is expected, its noise made alike, smoothed by about the width of a line."""
    rest = (counts - expected) * WEIGHTS
    kernel = np.exp(-0.5 * (np.arange(-4, 5) / 1.5) ** 2)
    smooth: Array = np.convolve(rest, kernel / kernel.sum(), "same")
    return smooth
