"""Here is the tenants' part of the admin site."""

from projects.admin import history, people, tenants, workloads

__all__ = ["history", "people", "tenants", "workloads"]
