"""Threads that store what ended pods leave behind: their outputs, and their changes to volumes in S3."""
