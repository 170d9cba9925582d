"""Durations, sizes, budgets, cells, times and the machine: what every room uses.  Imports the floors below."""
