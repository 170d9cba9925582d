"""A stream's history: its rows in order, and key indices that say which of them to read.  Imports `disk` and `lake`."""
