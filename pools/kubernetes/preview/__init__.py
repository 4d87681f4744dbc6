"""Check a cluster before a pool is created on it."""
