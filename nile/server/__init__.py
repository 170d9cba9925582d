"""A database over HTTP: statements, pushes, standing queries and their outputs; may import everything but the shell."""
