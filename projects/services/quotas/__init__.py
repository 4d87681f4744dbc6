"""Write services of quotas, quota drafts and budgets."""

from projects.services.quotas.values import Columns, columns_of, value_problems, values_of
from projects.services.quotas.write import owner_columns, remove_quota, require_to_set, set_quota

__all__ = [
    "Columns",
    "columns_of",
    "owner_columns",
    "remove_quota",
    "require_to_set",
    "set_quota",
    "value_problems",
    "values_of",
]
