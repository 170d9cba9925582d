"""Value x time grids in memory: zones, granularities, the multi-resolution index, the summary manager.

Imports `summaries`.
"""
