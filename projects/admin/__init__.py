"""Admin pages for tenants and workloads."""

from projects.admin import history, people, services, tenants, workloads

__all__ = ["history", "people", "services", "tenants", "workloads"]
