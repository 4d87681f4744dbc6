"""Submit, cancel, retry and count the tasks of arrays."""

from projects.services.arrays.control import cancel, delete, retry
from projects.services.arrays.counts import TaskCounts, counts_of
from projects.services.arrays.submission import ArraySubmission, predict, submit, validate

__all__ = [
    "ArraySubmission",
    "TaskCounts",
    "cancel",
    "counts_of",
    "delete",
    "predict",
    "retry",
    "submit",
    "validate",
]
