"""Whether answers are true: streams nobody tuned for, and what is asked of answers over them.  Imports `nile`."""
