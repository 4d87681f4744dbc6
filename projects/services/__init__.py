"""Write services of tenants and workloads: keyword-only, with `acting`, and audited."""
