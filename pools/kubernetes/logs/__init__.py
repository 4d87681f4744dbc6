"""Logs of Kubernetes pods."""
