"""Where rows can be sent, under the names that TO accepts.  Imports `nile.sensors.connectors` and the rooms below."""

__all__ = ["SINKS"]

SINKS = {
    "file": "nile.sensors.sinks.lines:Appended",
    "http": "nile.sensors.sinks.http:Posted",
    "kafka": "nile.sensors.sinks.kafka:Produced",
    "mqtt": "nile.sensors.sinks.mqtt:Published",
    "postgres": "nile.sensors.sinks.postgres:InsertedInto",
    "redis": "nile.sensors.sinks.redis:Added",
    "stdout": "nile.sensors.sinks.lines:Printed",
    "websocket": "nile.sensors.sinks.websocket:Said",
}
"""'module:Class' of each."""
