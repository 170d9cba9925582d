"""The `nile` command and everything that measures: runs, figures, benchmarks, the atlas, faults.

Imports every floor.
"""
