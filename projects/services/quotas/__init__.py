"""Write services of quotas, quota drafts and budgets."""

from projects.services.quotas.values import Columns, columns_of, faults_of, values_of
from projects.services.quotas.write import place_of, remove_quota, require_to_set, set_quota

__all__ = [
    "Columns",
    "columns_of",
    "faults_of",
    "place_of",
    "remove_quota",
    "require_to_set",
    "set_quota",
    "values_of",
]
