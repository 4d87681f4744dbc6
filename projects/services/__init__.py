"""Here every write to tenants and workloads has its one door: keyword-only, with `acting`, audited."""
