"""Tables of sensors: thousands of sources, and bursts.  Imports `nile`."""

from nile.experiments.benchmarks.sensors.thousands import sensors

__all__ = ["sensors"]
