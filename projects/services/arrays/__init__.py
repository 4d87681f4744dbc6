"""Submit, replace, cancel, suspend, resume, retry and count the tasks of arrays."""

from projects.services.arrays.control import cancel, delete, resume, retry, suspend
from projects.services.arrays.counts import TaskCounts, count_tasks, count_tasks_by_array
from projects.services.arrays.failures import (
    GENERAL_REASONS,
    FailureGroup,
    failure_causes,
    failure_sentence,
    failures_by_array,
)
from projects.services.arrays.limit import set_max_running
from projects.services.arrays.replacement import Replacement, pending_originals, replace_pending
from projects.services.arrays.stop_rules import worst_tasks
from projects.services.arrays.submission import ArraySubmission, predict, submit, validate

__all__ = [
    "GENERAL_REASONS",
    "ArraySubmission",
    "FailureGroup",
    "Replacement",
    "TaskCounts",
    "cancel",
    "count_tasks",
    "count_tasks_by_array",
    "delete",
    "failure_causes",
    "failure_sentence",
    "failures_by_array",
    "pending_originals",
    "predict",
    "replace_pending",
    "resume",
    "retry",
    "set_max_running",
    "submit",
    "suspend",
    "validate",
    "worst_tasks",
]
