"""Write operations on workloads: submission, control, templates and ports."""

from projects.services.workloads.control import BulkCancellation, bulk_cancel, cancel, delete, resume, suspend
from projects.services.workloads.submission import (
    Submission,
    name_taken_error,
    submit,
    submit_with_warnings,
)

__all__ = [
    "BulkCancellation",
    "Submission",
    "bulk_cancel",
    "cancel",
    "delete",
    "name_taken_error",
    "resume",
    "submit",
    "submit_with_warnings",
    "suspend",
]
