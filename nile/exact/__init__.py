"""The judges: exact window joins and continuous queries, correct at every instant.

Imports only the errors, so that no summary can affect the truth that judges it.
"""
