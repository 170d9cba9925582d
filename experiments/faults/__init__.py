"""The scoreboard of injected faults, and what must hold under each.  Imports `nile`."""
