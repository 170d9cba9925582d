"""Window joins in the atlas: the kinds that measure them, and their streams.  May import the exact joins and the atlas."""
