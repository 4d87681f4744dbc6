"""Measured utilization of pods, compared with their allocations.

*Held* resources are allocated to a pod. *Used* resources are measured on the pod's processes and devices.
"""
