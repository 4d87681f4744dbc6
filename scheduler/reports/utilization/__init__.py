"""Measured utilization of pods, compared with their allocations. *Allocated* resources are set aside for a
pod. *Used* resources are measured.
"""
