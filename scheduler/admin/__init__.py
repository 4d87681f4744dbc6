"""Admin pages for scheduler decisions, allocations and usage."""

from scheduler.admin import background_tasks, decisions, queues, quota_changes

__all__ = ["background_tasks", "decisions", "queues", "quota_changes"]
