"""The paper's algorithms as printed, and the opponents: scan, hash-buckets, hash-drop, hash-backlog, hash-keys.

Imports `common`.
"""
