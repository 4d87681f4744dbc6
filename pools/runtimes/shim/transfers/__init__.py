"""Downloads that a pod needs before its command can start.

These modules run on Python 3.9 and use only the standard library.
"""
