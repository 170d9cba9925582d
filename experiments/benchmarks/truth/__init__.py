"""Whether answers are true: streams that nobody tuned for, and the claims that answers over them must meet.

Imports `nile`.
"""
