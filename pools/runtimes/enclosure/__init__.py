"""Isolation of pods: what a node offers, and the command line that builds a pod's enclosure.

This package runs on nodes, so it uses only the standard library.
"""
