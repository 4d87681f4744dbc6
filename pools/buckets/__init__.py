"""Access to S3 volumes: credentials, listings and signed URLs."""
