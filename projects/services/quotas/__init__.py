"""Write operations on quotas, quota drafts and budgets."""

from projects.services.quotas.values import Columns, parse_columns, quota_values, value_problems
from projects.services.quotas.write import remove_quota, require_quota_permission, set_quota

__all__ = [
    "Columns",
    "parse_columns",
    "quota_values",
    "remove_quota",
    "require_quota_permission",
    "set_quota",
    "value_problems",
]
