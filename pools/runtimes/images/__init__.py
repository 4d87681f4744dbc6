"""Run pods in containers that podman creates.

This package runs on nodes, so it uses only the standard library. The shim imports it only for pods with an
image.
"""
