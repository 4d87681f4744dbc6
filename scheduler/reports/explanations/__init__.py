"""Explanations of workload states."""
