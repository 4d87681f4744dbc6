"""Eviction audit: stored records, their descriptions and totals by project."""
