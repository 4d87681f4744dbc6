"""Decide how many inference engines a service needs, based on its metrics.

REST views parse settings with `document.parse`. The service loop adds each sample to the service's
`SampleWindow` with `conditions.with_sample` and calls `decide.decide`. A decision does not change the window:
only a new sample extends or ends a streak.
"""
