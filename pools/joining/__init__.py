"""Protocol for joining machines to a pool."""
