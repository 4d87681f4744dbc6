"""Reports on scheduling decisions, their effects, and usage, and the storage of their measurements."""
