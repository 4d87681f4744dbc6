"""Channels to pods on Kubernetes: commands that users run through exec calls."""
