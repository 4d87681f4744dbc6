"""Agent and protocol by which machines join a pool."""
