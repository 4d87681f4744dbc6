"""Commands for quotas, quota groups, usage and budgets."""
