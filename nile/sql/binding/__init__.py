"""Name resolution: a query as written becomes a bound plan; subqueries become joins, window functions nodes.

Imports what `nile.sql` may.
"""
