"""Incremental mining of the values of streams, offered as table functions of SQL.

Imports `nile.streams` and the rooms below it, but no SQL.  Source: STEAM, section 7.2.
"""
