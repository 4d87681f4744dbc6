"""Evict pods, notify them of evictions, and record pods that their clusters evict or reject."""
