"""Kernels over the levels of keys: what tells which of them a weighted join takes in at all."""

from __future__ import annotations

from typing import Any

import numpy as np

from nile.preferences.arrival_kernels import unit
from nile.summaries.kernels import kernel

Array = np.ndarray[Any, Any]

__all__ = ["AN_OCTAVE", "OCTAVES", "classes_of"]

OCTAVES, AN_OCTAVE = 8, 16


@kernel
def classes_of(hashes: Array, salt: int, out: Array) -> None:
    """The class of each key's number in [0, 1): of the numbers from 2 ** -(e + 1) to 2 ** -e one of `AN_OCTAVE`, the
    greatest first; the last has all below 2 ** -`OCTAVES`.  hashes: uint64 [n]; out: int64 [n]."""
    for i in range(hashes.shape[0]):
        number = unit(hashes[i], salt)
        octave = 0
        while octave < OCTAVES and number < 0.5:
            number *= 2.0
            octave += 1
        place = np.int64((2.0 * number - 1.0) * AN_OCTAVE) if number >= 0.5 else 0
        out[i] = OCTAVES * AN_OCTAVE if octave == OCTAVES else AN_OCTAVE * octave + AN_OCTAVE - 1 - place
