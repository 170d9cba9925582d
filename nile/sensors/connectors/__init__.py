"""Built-in sources, under the names that USING accepts.  Imports `nile.sensors` and the rooms below it."""

__all__ = ["CONNECTORS"]

CONNECTORS = {
    "file": "nile.sensors.connectors.file:GrowingFile",
    "http": "nile.sensors.connectors.http:Polled",
    "kafka": "nile.sensors.connectors.kafka:Topic",
    "mqtt": "nile.sensors.connectors.mqtt:Topic",
    "postgres": "nile.sensors.connectors.postgres:InsertedRows",
    "redis": "nile.sensors.connectors.redis:RedisStream",
    "stdin": "nile.sensors.connectors.stdin:StandardInput",
    "websocket": "nile.sensors.connectors.websocket:Listened",
}
"""'module:Class' of each."""
