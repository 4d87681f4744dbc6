"""Download volumes and other data that a pod needs before its command starts.

These modules run on Python 3.9 and use only the standard library.
"""
