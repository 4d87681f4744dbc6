"""Collect the metrics that programs write to their logs."""
