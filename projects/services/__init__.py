"""Audited write operations on tenants and workloads. All arguments, including `actor`, are keyword-only."""
