"""Measured utilization of pods beside their allocations.

*Held* means allocated to a pod, *used* means measured on its processes and devices.
"""
