"""REST models for workloads."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, Literal
from uuid import UUID

from django.conf import settings
from django.db.models import Count, OuterRef, QuerySet, Subquery, Sum
from django.db.models.functions import Coalesce
from django.utils import timezone
from pydantic import Field, RootModel

from berth.server.api.responses import DecimalText, ProblemResponse, ResponseModel, from_milli
from projects.models import Phase, Pod, PodState, Workload, WorkloadRole
from projects.queries.costs import workload_cost, workload_costs
from projects.queries.idle_rules import idle_status
from projects.services.code import describe_code
from projects.services.workloads import Edit, Submission
from projects.services.workloads.prediction import Prediction

PhaseName = Literal[
    "pending", "reserved", "starting", "running", "stopping", "suspended", "completed", "failed", "cancelled"
]
WorkloadKindName = Literal["training", "elastic", "interactive", "service"]


RUNS_SHOWN = 20


class GpusResponse(ResponseModel):
    requested: float = Field(description="GPUs of the minimum gang.")
    now: float = Field(description="GPUs currently allocated to the workload's pods.")


class PodCountResponse(ResponseModel):
    running: int
    maximum: int = Field(description="Maximum number of replicas of all roles.")


class CostResponse(ResponseModel):
    amount: DecimalText = Field(
        description="Cost of all runs so far, at the price that applied in each hour."
    )
    currency: str


class IdleResponse(ResponseModel):
    """Idle GPU rules that apply to the workload, and the current warning."""

    sentence: str = Field(description="The warning, or the rules while there is none.")
    rules: list[str] = Field(description='Rules in the notation of the command line, such as "below=5%,...".')
    idle_since: datetime | None = Field(description="Null without a warning.")
    warned_at: datetime | None
    suspend_at: datetime | None = Field(description="Null if the workload will not be suspended.")


class ArrayTaskResponse(ResponseModel):
    id: UUID = Field(description="ID of the array.")
    index: int
    attempt: int = Field(description="1 for the first attempt, and one more for each retry.")
    superseded: bool = Field(description="Whether the task has a later attempt.")
    held: bool = Field(description="Whether the task waits for earlier tasks of the array.")


class WorkloadResponse(ResponseModel):
    id: UUID
    name: str
    project: str
    department: str
    kind: WorkloadKindName
    priority: int
    preemptible: bool
    pools: list[str]
    pool: str | None
    phase: PhaseName
    reason: str
    message: str
    since: datetime
    submitted_at: datetime
    submitted_by: str | None
    started_at: datetime | None
    ended_at: datetime | None
    run: int
    preemptions: int
    restarts: int = Field(description="Restarts by retry rules.")
    retries: dict[str, int] = Field(
        description="Restarts by kind of failure: exit codes, signals and reasons, as in retry rules. "
        "Requeues after lost nodes count as `node_lost`."
    )
    exit_code: int | None
    array: ArrayTaskResponse | None = Field(description="The task's array; null for other workloads.")
    gpus: GpusResponse
    labels: dict[str, str]
    queue_position: int | None
    expected_start: datetime | None
    pods: PodCountResponse
    cost: CostResponse | None = Field(
        description="Null for a workload that has used no GPUs, or that ran in a pool without a price."
    )


class RunImageResponse(ResponseModel):
    run: int
    image: str = Field(description="Image reference as written in the document.")
    digest: str | None = Field(description="Digest that all pods of the run use; null until it is known.")
    resolved_at: datetime | None
    error: str | None = Field(description="Error of the last failed attempt to resolve the tag.")


class WorkloadGitResponse(ResponseModel):
    """Git repository of the code, as specified in the document."""

    url: str
    ref: str | None = Field(description="Branch, tag or commit; null for the default branch.")
    directory: str | None
    secret: str | None
    secret_version: int | None = Field(description="Version of the secret that fetched the code.")
    state: Literal["waiting", "fetched", "failed"]
    error: str = Field(description="Error of the last failed attempt; empty without an error.")
    retry_at: datetime | None = Field(description="Time of the next attempt after an error.")
    fetched_at: datetime | None


class WorkloadCodeResponse(ResponseModel):
    """Code submitted with the workload.

    `commit` and `branch` come from the Git server, or from the submitter if `git` is null.
    """

    tree: str | None = Field(description="ID of the files; null until they are fetched.")
    commit: str | None
    branch: str | None
    dirty: bool = Field(description="Whether the files differ from the commit.")
    is_stored: bool = Field(description="Whether the files can still be downloaded.")
    size: int | None = Field(description="Size of all files in bytes; null if they are no longer stored.")
    files: int | None = Field(description="Number of files; null if they are no longer stored.")
    git: WorkloadGitResponse | None = Field(description="Null for files that were uploaded.")


class WorkloadDetailResponse(WorkloadResponse):
    spec: dict[str, Any]
    code: WorkloadCodeResponse | None = Field(description="Null for a workload without code.")
    avoided_nodes: list[str] = Field(description="Nodes that the retry rules avoid.")
    version: int = Field(description="Version for If-Match. Scheduling decisions and edits change it.")
    idle: IdleResponse | None = Field(
        description="Null if no rule for idle GPUs applies, and in responses to submissions."
    )
    images: list[RunImageResponse] = Field(
        description=f"Container images of the last {RUNS_SHOWN} runs, newest first; empty without an image."
    )


class SubmissionResponse(WorkloadDetailResponse):
    warnings: list[str] = Field(
        description="Advice for the submitter, for example about limits that are not enforced."
    )


class WorkloadPatch(RootModel[dict[str, Any]]):
    """JSON merge patch for a workload document, with the keys to change. Null removes a key."""


class DocumentChangeResponse(ResponseModel):
    """Changed value in the document. Null means that the value is not set."""

    path: str = Field(description="Location of the value, such as `roles[0].gpu`.")
    before: Any
    after: Any


class EditResponse(WorkloadDetailResponse):
    """Workload after an edit. In a dry run, the edit is not stored, but its effect is predicted."""

    changes: list[DocumentChangeResponse]
    increases: list[str] = Field(
        description="Each larger amount with the previous one. If there are any, the queue orders the "
        "workload by the time of the edit instead of its submission."
    )
    warnings: list[str] = Field(description="Warnings that a submission would return.")
    prediction: "DryRunResponse | None" = Field(
        description="Predicted outcome of the next scheduling cycle if a dry run's edit were stored, and the "
        "workload resumed if it is suspended; null if the edit was stored."
    )


class BlockerResponse(ResponseModel):
    reason: str
    message: str
    numbers: dict[str, Any]


LimitSourceName = Literal["document", "request", "pool"]


class PodLimitsResponse(ResponseModel):
    """Resource limits of a pod. Null means unlimited.

    The source is `document`, `request` (the pool limits pods to their requests) or `pool` (the pool's
    default).
    """

    memory_mib: int | None
    memory_source: LimitSourceName | None
    cpu: float | None
    cpu_source: LimitSourceName | None


class RoleLimitsResponse(PodLimitsResponse):
    pool: str
    role: str


class AwaitedEndResponse(ResponseModel):
    """Workload that must end before a pending workload is expected to start."""

    workload: str = Field(
        description="`project/name`, or `a workload of another project` if you may not see it."
    )
    end: datetime = Field(description="End of its maximum runtime.")


class DryRunResponse(ResponseModel):
    """Predicted outcome of the next scheduling cycle if nothing else changes."""

    outcome: Literal["would_start", "would_stay_pending", "would_evict", "unschedulable", "invalid"]
    workload: dict[str, Any] | None
    decisions: list[dict[str, Any]] = []
    evictions: list[dict[str, Any]] = []
    blockers: list[BlockerResponse] = []
    queue_position: int | None = None
    queue_position_reason: Annotated[
        str, Field(description="Why the workload directly ahead in the queue comes first.")
    ] = ""
    expected_start: datetime | None = None
    expected_start_reason: str = ""
    expected_start_after: Annotated[
        list[AwaitedEndResponse],
        Field(description="Workloads whose ends the estimate depends on: at most five, those that end last."),
    ] = []
    may_change_at: Annotated[
        datetime | None,
        Field(
            description="When the next restart delay of a pending workload in the same pools ends, if the "
            "outcome is `would_stay_pending`. Fair shares change then, so the outcome may change, too."
        ),
    ] = None
    nodes_to_boot: Annotated[
        int, Field(description="Nodes after whose boot the workload would start, or 0 if more is missing.")
    ] = 0
    warnings: Annotated[list[str], Field(description="Warnings that a submission would return.")] = []
    limits: Annotated[
        list[RoleLimitsResponse], Field(description="Limits of each role's pods in each pool.")
    ] = []
    errors: list[ProblemResponse.InvalidValue] = Field(
        [], description="Errors in the document, if the outcome is invalid."
    )


def annotate_pod_counts(rows: QuerySet[Workload]) -> QuerySet[Workload]:
    """Annotate the rows with pod counts, so that serializing them needs no further queries."""
    running = (
        Pod.objects.filter(workload=OuterRef("pk"), state=PodState.RUNNING).order_by().values("workload")
    )
    roles = WorkloadRole.objects.filter(workload=OuterRef("pk")).order_by().values("workload")
    return rows.annotate(
        pods_running=Coalesce(Subquery(running.annotate(n=Count("pk")).values("n")), 0),
        pods_maximum=Coalesce(Subquery(roles.annotate(n=Sum("max")).values("n")), 0),
    )


def serialize_list(rows: Sequence[Workload]) -> list[WorkloadResponse]:
    """Serialize workloads for lists, without their documents."""
    costs = workload_costs([row.pk for row in rows], timezone.now())
    return [WorkloadResponse.from_row(row, **_workload_values(row, costs.get(row.pk))) for row in rows]


def serialize_workload(workload: Workload) -> WorkloadDetailResponse:
    """Serialize a workload with its parsed document."""
    row = _read_row(workload)
    return WorkloadDetailResponse.from_row(
        row,
        images=_run_images(row),
        code=_code_response(row),
        idle=_idle_response(row),
        **_workload_values(row, _current_cost(row)),
    )


def serialize_edit(edit: Edit, prediction: Prediction | None) -> EditResponse:
    """Serialize an edit, with the prediction if it was a dry run."""
    row = _read_row(edit.workload)
    return EditResponse.from_row(
        row,
        images=_run_images(row),
        code=_code_response(row),
        idle=_idle_response(row),
        changes=[DocumentChangeResponse(**asdict(change)) for change in edit.changes],
        increases=edit.increases,
        warnings=edit.warnings,
        prediction=None if prediction is None else DryRunResponse(**asdict(prediction)),
        **_workload_values(row, _current_cost(row)),
    )


def serialize_new_row(submitted: Submission) -> WorkloadResponse:
    """Serialize a new workload as a list row, without querying it again."""
    row: Any = submitted.workload
    row.pods_running, row.pods_maximum = 0, submitted.replicas_max
    return WorkloadResponse.from_row(row, **_workload_values(row, None))


def serialize_submission(submitted: Submission) -> SubmissionResponse:
    """Serialize a new workload, which has no pods yet, without querying its row again."""
    row: Any = submitted.workload
    row.pods_running = 0
    row.pods_maximum = submitted.replicas_max
    return SubmissionResponse.from_row(
        row,
        images=[],
        code=_code_response(row),
        idle=None,
        warnings=submitted.warnings,
        **_workload_values(row, None),
    )


def _read_row(workload: Workload) -> Workload:
    rows = Workload.objects.select_related(
        "project__department", "submitted_by", "pool", "code", "code_fetch"
    )
    rows = rows.defer("code__files", "code__chunks")
    return annotate_pod_counts(rows).get(pk=workload.pk)


def _run_images(workload: Workload) -> list[RunImageResponse]:
    return [
        RunImageResponse.from_row(row, digest=row.digest or None, error=row.error or None)
        for row in workload.images.order_by("-run")[:RUNS_SHOWN]
    ]


def _code_response(workload: Workload) -> WorkloadCodeResponse | None:
    code = describe_code(workload)
    if code is None:
        return None
    git = None if code.git is None else WorkloadGitResponse(**asdict(code.git))
    return WorkloadCodeResponse(**{**asdict(code), "git": git})


def _idle_response(workload: Workload) -> IdleResponse | None:
    status = idle_status(workload)
    if not status.sentence:
        return None
    warning = status.warning
    return IdleResponse(
        sentence=status.sentence,
        rules=[applied.rule.text for applied in status.rules],
        idle_since=None if warning is None else warning.since,
        warned_at=None if warning is None else warning.at,
        suspend_at=None if warning is None else warning.suspend_at,
    )


def _current_cost(workload: Workload) -> Decimal | None:
    return workload_cost(workload.pk, timezone.now())


def _workload_values(row: Any, cost: Decimal | None) -> dict[str, Any]:
    explanation = row.explanation or {}
    return {
        "project": row.project.name,
        "department": row.project.department.name,
        "pool": row.pool.name if row.pool else None,
        "submitted_by": row.submitted_by.username if row.submitted_by else None,
        "gpus": GpusResponse(
            requested=from_milli(row.gpu_milli_min) or 0, now=from_milli(row.gpu_milli_now) or 0
        ),
        "array": None
        if row.array_id is None
        else ArrayTaskResponse(
            id=row.array_id,
            index=row.array_index,
            attempt=row.attempt,
            superseded=row.superseded,
            held=row.held,
        ),
        # If the last cycle reserved nodes for the workload, its explanation still has the old queue position.
        "queue_position": None if row.phase == Phase.RESERVED else explanation.get("queue_position"),
        "expected_start": explanation.get("expected_start"),
        "pods": PodCountResponse(running=row.pods_running, maximum=row.pods_maximum),
        "cost": None if cost is None else CostResponse(amount=cost, currency=settings.BERTH_CURRENCY),
    }
