"""A client for a database served by another process, with a local database's methods.

Imports `nile.answers` and what lies below, and the definitions of `nile.execution`."""
