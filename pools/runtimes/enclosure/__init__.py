"""Isolate pods from each other with bubblewrap, Unix users and system call filters.

Runs on nodes, with only the standard library.
"""
