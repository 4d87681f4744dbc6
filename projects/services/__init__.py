"""The write services of tenants and workloads: keyword-only, with `acting`, audited."""
