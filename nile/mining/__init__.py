"""Mining: what is found in the values of streams as they come, as table functions of SQL.

Imports `nile.streams` and the rooms below it; knows nothing of SQL.  Source: STEAM, section 7.2.
"""
