"""Write services of workloads: submission, control, templates and ports."""

from projects.services.workloads.control import Bulk, bulk_cancel, cancel, delete, resume, suspend
from projects.services.workloads.submission import (
    Submission,
    name_taken,
    prepared,
    submit,
    submit_with_warnings,
    warnings_of,
)

__all__ = [
    "Bulk",
    "Submission",
    "bulk_cancel",
    "cancel",
    "delete",
    "name_taken",
    "prepared",
    "resume",
    "submit",
    "submit_with_warnings",
    "suspend",
    "warnings_of",
]
