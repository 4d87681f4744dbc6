"""Sections of a workload document, one module each."""
