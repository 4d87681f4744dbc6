"""Limit and check a pod's memory, CPU, processes, disk usage and log size."""
