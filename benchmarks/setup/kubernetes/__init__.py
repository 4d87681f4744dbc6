"""Nodes, pods and measurements of the Kubernetes benchmark."""
