"""Where rows can be sent.  Imports `nile.sensors.connectors` and the rooms below it."""

__all__: list[str] = []
