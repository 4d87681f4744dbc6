"""Threads that store files left behind by ended pods: outputs, and changes to S3 volumes."""
