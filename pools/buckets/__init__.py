"""Volumes in S3: credentials, listings and signed URLs."""
