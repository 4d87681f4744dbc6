"""REST models of a workload."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from django.db.models import Count, OuterRef, QuerySet, Subquery, Sum
from django.db.models.functions import Coalesce
from pydantic import Field

from berth.server.api.responses import Answer, ProblemAnswer, from_milli
from projects.models import Pod, PodState, RoleNode, Workload
from projects.services.workloads import Submission

PhaseWord = Literal[
    "pending", "reserved", "starting", "running", "stopping", "suspended", "completed", "failed", "cancelled"
]
KindWord = Literal["training", "elastic", "interactive", "service"]


class Gpus(Answer):
    requested: float = Field(description="GPUs of the smallest gang.")
    now: float = Field(description="GPUs allocated to its pods now.")


class PodCount(Answer):
    running: int
    wanted: int = Field(description="Replicas of all roles at their most.")


class WorkloadAnswer(Answer):
    id: UUID
    name: str
    project: str
    department: str
    kind: KindWord
    priority: int
    preemptible: bool
    pools: list[str]
    pool: str | None
    phase: PhaseWord
    reason: str
    message: str
    since: datetime
    submitted_at: datetime
    submitted_by: str | None
    started_at: datetime | None
    ended_at: datetime | None
    run: int
    preemptions: int
    restarts: int
    exit_code: int | None
    gpus: Gpus
    labels: dict[str, str]
    queue_position: int | None
    expected_start: datetime | None
    pods: PodCount


class OneWorkloadAnswer(WorkloadAnswer):
    spec: dict[str, Any]


class SubmittedAnswer(OneWorkloadAnswer):
    warnings: list[str] = Field(
        description="Advice for the submitter, for example about limits that are not enforced."
    )


class BlockerAnswer(Answer):
    reason: str
    message: str
    numbers: dict[str, Any]


class PredictionAnswer(Answer):
    """Outcome of the next scheduling cycle if nothing else changed."""

    outcome: Literal["would_start", "would_wait", "would_evict", "unschedulable", "invalid"]
    workload: dict[str, Any] | None
    decisions: list[dict[str, Any]] = []
    evictions: list[dict[str, Any]] = []
    blockers: list[BlockerAnswer] = []
    queue_position: int | None = None
    expected_start: datetime | None = None
    expected_start_reason: str = ""
    warnings: Annotated[list[str], Field(description="The warnings that a submission returns.")] = []
    errors: list[ProblemAnswer.Fault] = Field(
        [], description="Errors in the document, if the outcome is invalid."
    )


def with_counts(rows: QuerySet[Workload]) -> QuerySet[Workload]:
    """Annotate the rows with their counts, so that a page is a single statement."""
    running = (
        Pod.objects.filter(workload=OuterRef("pk"), state=PodState.RUNNING).order_by().values("workload")
    )
    wanted = RoleNode.objects.filter(workload=OuterRef("pk"), max__isnull=False).order_by().values("workload")
    return rows.annotate(
        pods_running=Coalesce(Subquery(running.annotate(n=Count("pk")).values("n")), 0),
        pods_wanted=Coalesce(Subquery(wanted.annotate(n=Sum("max")).values("n")), 0),
    )


def listed(rows: Sequence[Workload]) -> list[Any]:
    return [WorkloadAnswer(**values_of(row)) for row in rows]


def answer(workload: Workload) -> OneWorkloadAnswer:
    """Present a workload with its parsed document."""
    row = with_counts(Workload.objects.select_related("project__department", "submitted_by", "pool")).get(
        pk=workload.pk
    )
    return OneWorkloadAnswer(spec=row.spec, **values_of(row))


def submission(done: Submission) -> SubmittedAnswer:
    """Present a workload that was just stored: it has no pods, and its row is not read again."""
    row: Any = done.workload
    row.pods_running = 0
    row.pods_wanted = done.workload.roles.aggregate(n=Sum("max"))["n"] or 0
    return SubmittedAnswer(spec=row.spec, warnings=done.warnings, **values_of(row))


def values_of(row: Any) -> dict[str, Any]:
    explanation = row.explanation or {}
    return {
        **{name: getattr(row, name) for name in _PLAIN},
        "project": row.project.name,
        "department": row.project.department.name,
        "pool": row.pool.name if row.pool else None,
        "submitted_by": row.submitted_by.username if row.submitted_by else None,
        "gpus": Gpus(requested=from_milli(row.gpu_milli_min) or 0, now=from_milli(row.gpu_milli_now) or 0),
        "queue_position": explanation.get("queue_position"),
        "expected_start": explanation.get("expected_start"),
        "pods": PodCount(running=row.pods_running, wanted=row.pods_wanted),
    }


def _plain(names: Iterable[str]) -> tuple[str, ...]:
    columns = {field.name for field in Workload._meta.concrete_fields if not field.is_relation}
    return tuple(name for name in names if name in columns)


_PLAIN = _plain(WorkloadAnswer.model_fields)
