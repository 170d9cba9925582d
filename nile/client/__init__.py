"""A database that another process serves, as it would be here; may import answers and all below them."""
