"""Isolate pods from each other with bubblewrap, Unix users and system call filters.

This package runs on nodes, so it uses only the standard library.
"""
