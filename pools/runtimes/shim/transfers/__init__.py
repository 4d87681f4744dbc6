"""Download volumes and other data that a pod needs before its command starts.

Needs only Python 3.9 and the standard library.
"""
