"""What standing queries share: whole plans, and parts of plans.

May import what `nile.execution.live` may.
"""
