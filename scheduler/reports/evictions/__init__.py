"""Audit of evictions: stored rows, their wording, and sums by project."""
