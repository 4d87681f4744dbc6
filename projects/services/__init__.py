"""Audited write operations on tenants and workloads, called with keyword arguments and `actor`."""
