"""The paper's algorithms as printed, and the opponents: scan, hash-drop, hash-backlog, hash-keys.

Imports `common`.
"""
