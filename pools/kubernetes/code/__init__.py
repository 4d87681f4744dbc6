"""Workload code on Kubernetes, which Berth copies into each pod before its command starts."""
