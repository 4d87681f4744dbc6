# Generated from the OpenAPI document by `python -m berth.client.generate`; do not edit.
"""Response models for workloads."""

from datetime import datetime
from decimal import Decimal
from typing import Any

from pydantic import Field

from berth.client.models.base import Model
from berth.client.models.mixins import PodMixin, WorkloadMixin


class Cost(Model):
    amount: Decimal
    """Cost of all runs so far, at the price that applied in each hour."""
    currency: str = ""


class Blocker(Model):
    reason: str = ""
    message: str = ""
    numbers: dict[str, Any] = {}


class AwaitedEnd(Model):
    """Workload that must end before a pending workload is expected to start."""

    workload: str = ""
    """`project/name`, or `a workload of another project` if you may not see it."""
    end: datetime
    """End of its maximum runtime."""


class PodLimits(Model):
    """Resource limits of a pod. None means unlimited.  The source is `document`, `request` (the pool
    limits pods to their requests) or `pool` (the pool's default)."""

    memory_mib: int | None = None
    memory_source: str | None = None
    cpu: float | None = None
    cpu_source: str | None = None


class RoleLimits(PodLimits):
    pool: str = ""
    role: str = ""


class InvalidValue(Model):
    """Invalid value in a request."""

    path: str = ""
    message: str = ""
    received: str = ""
    allowed: str = ""


class DryRun(Model):
    """Predicted outcome of the next scheduling cycle if nothing else changes."""

    outcome: str = ""
    workload: dict[str, Any] | None = None
    decisions: list[dict[str, Any]] = []
    evictions: list[dict[str, Any]] = []
    blockers: list[Blocker] = []
    queue_position: int | None = None
    queue_position_reason: str = ""
    """Why the workload directly ahead in the queue comes first."""
    expected_start: datetime | None = None
    expected_start_reason: str = ""
    expected_start_after: list[AwaitedEnd] = []
    """Workloads whose ends the estimate depends on: at most five, those that end last."""
    may_change_at: datetime | None = None
    """When the next restart delay of a pending workload in the same pools ends, if the outcome is
    `would_stay_pending`. Fair shares change then, so the outcome may change, too."""
    nodes_to_boot: int = 0
    """Nodes after whose boot the workload would start, or 0 if more is missing."""
    warnings: list[str] = []
    """Warnings that a submission would return."""
    limits: list[RoleLimits] = []
    """Limits of each role's pods in each pool."""
    errors: list[InvalidValue] = []
    """Errors in the document, if the outcome is invalid."""


class ArrayTask(Model):
    id: str
    """ID of the array."""
    index: int = 0
    attempt: int = 0
    """1 for the first attempt, and one more for each retry."""
    superseded: bool = False
    """Whether the task has a later attempt."""
    held: bool = False
    """Whether the task waits for earlier tasks of the array."""


class Gpus(Model):
    requested: float = 0
    """GPUs of the minimum gang."""
    now: float = 0
    """GPUs currently allocated to the workload's pods."""


class PodCount(Model):
    running: int = 0
    maximum: int = 0
    """Maximum number of replicas of all roles."""


class Workload(WorkloadMixin, Model):
    id: str
    name: str
    project: str = ""
    department: str = ""
    kind: str = ""
    priority: int = 0
    preemptible: bool = False
    pools: list[str] = []
    pool: str | None = None
    phase: str = ""
    reason: str = ""
    message: str = ""
    since: datetime
    submitted_at: datetime
    submitted_by: str | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    run: int = 0
    preemptions: int = 0
    restarts: int = 0
    """Restarts by retry rules."""
    retries: dict[str, int] = {}
    """Restarts by kind of failure: exit codes, signals and reasons, as in retry rules. Requeues after lost
    nodes count as `node_lost`."""
    exit_code: int | None = None
    array: ArrayTask | None = None
    """The task's array; None for other workloads."""
    gpus: Gpus = Field(default_factory=Gpus)
    labels: dict[str, str] = {}
    queue_position: int | None = None
    expected_start: datetime | None = None
    pods: PodCount = Field(default_factory=PodCount)
    cost: Cost | None = None
    """None for a workload that has used no GPUs, or that ran in a pool without a price."""


class RejectedItem(Model):
    code: str = ""
    detail: str = ""
    errors: list[InvalidValue] = []


class BatchItem(Model):
    """Result for one document of the request. Results are in the order of the documents."""

    workload: Workload | None = None
    """The stored workload; None if there is none."""
    warnings: list[str] = []
    error: RejectedItem | None = None
    """Reason why the document is rejected."""


class Batch(Model):
    stored: int = 0
    rejected: int = 0
    items: list[BatchItem] = []


class Dependency(Model):
    """Workload or array that must first reach `state`. Its current status is hidden if you cannot see the
    project."""

    project: str = ""
    name: str
    state: str = ""
    """Required state."""
    tasks: str | None = None
    outcome: str = ""
    id: str | None = None
    """None if it is hidden or was not submitted."""
    is_array: bool = False
    phase: str | None = None
    """Current phase or, for an array, current state."""
    queue_position: int | None = None


class Dependent(Model):
    """Pending workload or array that depends on this one, and the state that it requires."""

    project: str = ""
    name: str
    state: str = ""
    tasks: str | None = None
    id: str
    is_array: bool = False
    phase: str = ""


class Dependencies(Model):
    waits_for: list[Dependency] = []
    awaited_by: list[Dependent] = []
    """The first 100 that you can see, by name."""


class WorkloadGit(Model):
    """Git repository of the code, as specified in the document."""

    url: str = ""
    ref: str | None = None
    """Branch, tag or commit; None for the default branch."""
    directory: str | None = None
    secret: str | None = None
    secret_version: int | None = None
    """Version of the secret that fetched the code."""
    state: str = ""
    error: str = ""
    """Error of the last failed attempt; empty without an error."""
    retry_at: datetime | None = None
    """Time of the next attempt after an error."""
    fetched_at: datetime | None = None


class WorkloadCode(Model):
    """Code submitted with the workload.  `commit` and `branch` come from the Git server, or from the
    submitter if `git` is None."""

    tree: str | None = None
    """ID of the files; None until they are fetched."""
    commit: str | None = None
    branch: str | None = None
    dirty: bool = False
    """Whether the files differ from the commit."""
    is_stored: bool = False
    """Whether the files can still be downloaded."""
    size: int | None = None
    """Size of all files in bytes; None if they are no longer stored."""
    files: int | None = None
    """Number of files; None if they are no longer stored."""
    git: WorkloadGit | None = None
    """None for files that were uploaded."""


class Idle(Model):
    """Idle GPU rules that apply to the workload, and the current warning."""

    sentence: str = ""
    """The warning, or the rules while there is none."""
    rules: list[str] = []
    """Rules in the notation of the command line, such as "below=5%,..."."""
    idle_since: datetime | None = None
    """None without a warning."""
    warned_at: datetime | None = None
    suspend_at: datetime | None = None
    """None if the workload will not be suspended."""


class RunImage(Model):
    run: int = 0
    image: str = ""
    """Image reference as written in the document."""
    digest: str | None = None
    """Digest that all pods of the run use; None until it is known."""
    resolved_at: datetime | None = None
    error: str | None = None
    """Error of the last failed attempt to resolve the tag."""


class WorkloadDetail(Workload):
    spec: dict[str, Any] = {}
    code: WorkloadCode | None = None
    """None for a workload without code."""
    avoided_nodes: list[str] = []
    """Nodes that the retry rules avoid."""
    version: int = 0
    """Version for If-Match. Scheduling decisions and edits change it."""
    idle: Idle | None = None
    """None if no rule for idle GPUs applies, and in responses to submissions."""
    images: list[RunImage] = []
    """Container images of the last 20 runs, newest first; empty without an image."""


class DocumentChange(Model):
    """Changed value in the document. None means that the value is not set."""

    path: str = ""
    """Location of the value, such as `roles[0].gpu`."""
    before: Any = None
    after: Any = None


class Edit(WorkloadDetail):
    """Workload after an edit. In a dry run, the edit is not stored, but its effect is predicted."""

    changes: list[DocumentChange] = []
    increases: list[str] = []
    """Each larger amount with the previous one. If there are any, the queue orders the workload by the
    time of the edit instead of its submission."""
    warnings: list[str] = []
    """Warnings that a submission would return."""
    prediction: DryRun | None = None
    """Predicted outcome of the next scheduling cycle if a dry run's edit were stored, and the workload
    resumed if it is suspended; None if the edit was stored."""


class Event(Model):
    id: int
    at: datetime
    kind: str = ""
    workload: str | None = None
    project: str | None = None
    subject: str = ""
    message: str = ""
    data: dict[str, Any] = {}
    actor: str = ""


class LogMatch(Model):
    """Log line that matches the search. Long lines are truncated, and invalid bytes are replaced."""

    line: int = 0
    """Line number in the retained log, starting at 1."""
    offset: int = 0
    """Byte offset of the line."""
    text: str = ""
    before: list[str] = []
    after: list[str] = []


class LogMatches(Model):
    """Page of log lines that match the search."""

    pod: str = ""
    run: int = 0
    matches: int = 0
    """Matching lines from the start of the search up to `searched_bytes`."""
    size: int = 0
    """Size of the log in bytes."""
    searched_bytes: int = 0
    """Byte offset at which the search ended. Very long logs are not searched to the end."""
    items: list[LogMatch] = []
    next: str | None = None


class Pod(PodMixin, Model):
    id: str
    workload: str = ""
    workload_name: str = ""
    project: str = ""
    role: str = ""
    index: int = 0
    run: int = 0
    rank: int = 0
    node: str = ""
    pool: str = ""
    devices: list[int] = []
    gpus: float = 0
    state: str = ""
    since: datetime
    created_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    stop_reason: str = ""
    signalled_at: datetime | None = None
    """Time at which the preemption signal was sent."""
    exit_code: int | None = None
    signal: int | None = None
    message: str = ""
    files_until: datetime | None = None
    """Time until which the node keeps the failed pod's files; None if it does not."""
    limits: PodLimits = Field(default_factory=PodLimits)
    memory_peak_mib: int | None = None
    """Largest memory usage in MiB; None until the node has measured it."""


class PortLink(Model):
    """One-time link that opens a port in a browser, if it is used before `expires_at`."""

    url: str = ""
    expires_at: datetime


class Submission(WorkloadDetail):
    warnings: list[str] = []
    """Advice for the submitter, for example about limits that are not enforced."""
