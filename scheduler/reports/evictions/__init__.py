"""Audit of evictions: stored records, their descriptions, and totals by project."""
