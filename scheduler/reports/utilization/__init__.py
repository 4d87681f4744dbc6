"""Measured utilization of pods beside their allocations.

Words: *held* is what a pod's allocation says, *used* is what was measured of its processes and devices.
"""
