"""Activity page: the audit log as sentences."""
