"""Durations, sizes, cells, times and the machine: what every room speaks of.  Imports the errors below, no room."""
