"""The protocol by which machines join a pool."""
