"""The judges: window joins and continuous queries that are right at every instant.

Imports the errors and nothing else of Nile, so that no summary can reach the truth that judges it.
"""
