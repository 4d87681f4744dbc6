"""Agent and protocol for joining machines to a pool."""
