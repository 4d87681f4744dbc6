"""Decide the number of engines of a service from their metrics.

A door reads settings with `document.parse`, the loop adds each sample to the service's `Window` with
`conditions.seen` and asks `decide.decide`. Asking changes nothing: only a new sample moves a streak.
"""
