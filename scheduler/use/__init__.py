"""Here is what pods really use, beside what they hold: measured, written down, told.

Words: *held* is what a pod's allocation says, *used* is what was measured of its processes and devices.
"""
