"""Run pods in containers that podman creates.

Runs on nodes, with only the standard library. The shim imports it only for pods with an image.
"""
