"""Tables of sensors: thousands of sources, and bursts.  Imports the engine."""

from nile.experiments.benchmarks.sensors.thousands import sensors

__all__ = ["sensors"]
