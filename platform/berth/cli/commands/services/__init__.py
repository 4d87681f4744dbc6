"""Commands for inference services."""
