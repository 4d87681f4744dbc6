"""Threads that store the files that ended pods leave behind: outputs, and changes to volumes in S3."""
