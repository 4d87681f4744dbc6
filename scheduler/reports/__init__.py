"""Read-only reports on scheduling decisions, their effects, and usage."""
