"""A database over HTTP: statements, pushes, standing queries and their outputs.

Imports `nile.engine` and what lies below.
"""
