"""Write operations on workloads: submission, control, templates and ports."""

from projects.services.workloads.control import BulkCancellation, bulk_cancel, cancel, delete, resume, suspend
from projects.services.workloads.submission import (
    Submission,
    collect_warnings,
    name_taken_error,
    prepare_workload,
    submit,
    submit_with_warnings,
)

__all__ = [
    "BulkCancellation",
    "Submission",
    "bulk_cancel",
    "cancel",
    "collect_warnings",
    "delete",
    "name_taken_error",
    "prepare_workload",
    "resume",
    "submit",
    "submit_with_warnings",
    "suspend",
]
