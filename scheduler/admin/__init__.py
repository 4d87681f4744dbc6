"""Admin pages for scheduler decisions, allocations and usage."""

from scheduler.admin import decisions, queues

__all__ = ["decisions", "queues"]
