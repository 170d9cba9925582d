"""Streaming electrocardiograms, simulated: heartbeats, heart rate, and premature beats."""
