"""A SELECT as it is written: Nile's clauses split off, the rest parsed by sqlglot and taken apart by an allow-list.

May import what nile/sql may.
"""
