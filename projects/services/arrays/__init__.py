"""Submit, cancel, retry and count the tasks of arrays."""

from projects.services.arrays.control import cancel, delete, retry
from projects.services.arrays.counts import TaskCounts, count_tasks_by_array
from projects.services.arrays.submission import ArraySubmission, predict, submit, validate

__all__ = [
    "ArraySubmission",
    "TaskCounts",
    "cancel",
    "count_tasks_by_array",
    "delete",
    "predict",
    "retry",
    "submit",
    "validate",
]
