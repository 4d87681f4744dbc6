"""Audited write operations on tenants and workloads, and the checks and queries that they share.

All arguments are keyword-only.
"""
