"""Admin pages for scheduler decisions, allocations and usage."""

from scheduler.admin import decisions, queues, quota_changes

__all__ = ["decisions", "queues", "quota_changes"]
