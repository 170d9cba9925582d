"""Names to columns: a query as written becomes a bound plan, queries and window functions inside of it joins and nodes.

May import what nile/sql may.
"""
