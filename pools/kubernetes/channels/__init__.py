"""Channels of pods on Kubernetes: commands that users run in them, through the exec calls of the API."""
