"""The scoreboard of faults: what is done to Nile on purpose, and what must hold.  Imports `nile`."""
