"""Write operations on workloads: submission, edits, control, templates and ports."""

from projects.services.workloads.control import (
    BulkChange,
    WorkloadOperation,
    bulk_change,
    cancel,
    delete,
    resume,
    suspend,
)
from projects.services.workloads.editing import (
    EDITABLE_PHASES,
    DocumentChange,
    Edit,
    edit,
    editable_workloads,
    is_editable,
    managed_workloads,
)
from projects.services.workloads.names import free_name, free_name_to_suggest, next_free_name
from projects.services.workloads.resubmission import (
    RESUBMITTED_EVENT,
    resubmission_obstacle,
    resubmit,
)
from projects.services.workloads.submission import (
    NameInUse,
    Submission,
    current_quota_warnings,
    name_taken_error,
    submit,
    submit_with_warnings,
)

__all__ = [
    "EDITABLE_PHASES",
    "RESUBMITTED_EVENT",
    "BulkChange",
    "DocumentChange",
    "Edit",
    "NameInUse",
    "Submission",
    "WorkloadOperation",
    "bulk_change",
    "cancel",
    "current_quota_warnings",
    "delete",
    "edit",
    "editable_workloads",
    "free_name",
    "free_name_to_suggest",
    "is_editable",
    "managed_workloads",
    "name_taken_error",
    "next_free_name",
    "resubmission_obstacle",
    "resubmit",
    "resume",
    "submit",
    "submit_with_warnings",
    "suspend",
]
