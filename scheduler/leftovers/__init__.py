"""Threads that store what finished pods leave behind: outputs and changes to S3 volumes."""
