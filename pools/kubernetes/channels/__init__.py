"""Channels to Kubernetes pods: commands and port forwarding through the API server."""
