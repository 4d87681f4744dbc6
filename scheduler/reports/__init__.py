"""Reports on scheduling decisions, their effects and usage, and storage of the underlying measurements."""
