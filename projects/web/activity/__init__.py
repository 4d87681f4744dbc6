"""Activity page, which shows the audit log as sentences."""
