"""Sensors: thousands of sources as rows of one table, with static columns and values that stream.

Imports `nile.streams` and the rooms below it, but no SQL.  Source: STEAM, sections 3.3 to 5.
"""
