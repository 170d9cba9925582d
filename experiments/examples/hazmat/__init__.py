"""Boxes pass gamma detectors, which identify their content or report it as unknown.  Source: STEAM, section 7."""
