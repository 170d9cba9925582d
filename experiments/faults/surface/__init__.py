"""Faults of the user's interface: types in every clause, expressions, closed databases, standard streams, stores."""
