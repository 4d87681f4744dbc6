"""Pools on a Kubernetes cluster: its API, a mirror of its nodes and pods, and the runtime of its pods."""
