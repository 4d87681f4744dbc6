"""Decide the number of engines of a service from its metrics.

REST views parse settings with `document.parse`. The loop adds each sample to the service's `Window` with
`conditions.with_sample` and calls `decide.decide`. Deciding changes nothing: only a new sample changes a
streak.
"""
