"""Logs of pods on Kubernetes."""
