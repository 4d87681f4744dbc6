"""Threads that store what ended pods leave behind: outputs and changes to S3 volumes."""
