"""Pools on a Kubernetes cluster: API client, mirror of nodes and pods, and runtime."""
