"""Where outputs of standing queries are sent: sinks that write to what connectors read.  In `nile.execution.live`."""
