"""Sessions: run Python functions on the nodes of a pool."""
