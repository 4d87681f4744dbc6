"""Explain why each workload is where it is."""
