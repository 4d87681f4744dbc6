"""Writes that send one query for many rows, check constraints first, and detect concurrent changes."""
