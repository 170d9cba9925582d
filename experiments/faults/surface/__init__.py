"""Faults of what a user touches: types in every clause, expressions, closed databases, streams of the shell, stores."""
