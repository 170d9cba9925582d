"""Boxes pass gamma detectors; what they hold is told, or that it is nothing known.  Source: STEAM, section 7."""
