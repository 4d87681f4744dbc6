"""Run pods in containers. podman pulls the images and creates the containers.

This package runs on nodes, so it uses only the standard library. The shim imports the package only for pods
with an image.
"""
