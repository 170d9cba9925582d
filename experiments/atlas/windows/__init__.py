"""Window joins in the atlas: the kinds that measure them, and their streams.  Imports exact joins and the atlas."""
