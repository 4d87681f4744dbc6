"""Pools whose pods run on an existing Kubernetes cluster."""
