"""Container images of pods. podman pulls the images and creates the containers that pods enter.

This package runs on nodes, so it uses only the standard library. The shim imports the package only for pods
with an image.
"""
