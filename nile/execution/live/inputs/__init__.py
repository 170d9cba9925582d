"""What gives live streams their tuples beside pushes: tables of sensors, connectors, table functions."""

__all__: list[str] = []
