"""Collection of the metrics that programs report in their logs."""
