"""Admin pages for tenants and workloads."""

from projects.admin import history, people, quotas, services, tenants, workloads

__all__ = ["history", "people", "quotas", "services", "tenants", "workloads"]
