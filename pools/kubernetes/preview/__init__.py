"""Preview of a cluster before a pool is created on it."""
