"""Isolation of pods: the levels that nodes offer, and the command lines that build enclosures.

This package runs on nodes, so it uses only the standard library.
"""
