"""Models for workloads, their roles and their pods."""

import uuid

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from berth.core.values.priorities import DEFAULT
from berth.db.queries.fast_rows import FastRows
from projects.models.arrays import WorkloadArray
from projects.models.code import CodeFetch, CodeTree
from projects.models.tenants import NAME, Project


class Phase(models.TextChoices):
    PENDING = "pending"
    RESERVED = "reserved"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    SUSPENDED = "suspended"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


ENDED_PHASES = (Phase.COMPLETED, Phase.FAILED, Phase.CANCELLED)
LIVE_PHASES = tuple(phase for phase in Phase if phase not in ENDED_PHASES)
# Phases of workloads that the scheduler's snapshot includes.
OBSERVED_PHASES = ("pending", "reserved", "starting", "running", "stopping")


class WorkloadKind(models.TextChoices):
    TRAINING = "training", "Training"
    ELASTIC = "elastic", "Elastic training"
    INTERACTIVE = "interactive", "Interactive session"
    SERVICE = "service", "Inference service"


class PodState(models.TextChoices):
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"
    LOST = "lost"


LIVE_POD_STATES = (PodState.STARTING, PodState.RUNNING, PodState.STOPPING)
HAS_LABELS = ~Q(labels={})  # condition of the partial index on labels; queries must repeat it


class Workload(FastRows):
    """Submitted workload. `spec` stores the parsed document.

    The other columns are for filters and the scheduler.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    # `workload_project_newest` covers this column, and every additional index slows down writes.
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="workloads", db_index=False)
    name = models.CharField(max_length=63, validators=[NAME])
    kind = models.CharField(max_length=12, choices=WorkloadKind.choices, default=WorkloadKind.TRAINING)
    submitted_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="workloads"
    )
    spec = models.JSONField()
    labels = models.JSONField(default=dict)
    code = models.ForeignKey(
        CodeTree, null=True, blank=True, on_delete=models.SET_NULL, related_name="workloads", db_index=False,
        help_text="Files that each pod receives when it starts. Empty after the files have expired.",
    )  # fmt: skip
    code_fetch = models.ForeignKey(
        CodeFetch, null=True, blank=True, on_delete=models.SET_NULL, related_name="workloads", db_index=False
    )
    code_wait = models.TextField(
        blank=True, help_text="Reason why the workload's code is not available yet, as a sentence."
    )
    pools = ArrayField(models.CharField(max_length=63), help_text="Pool names in order of preference.")
    priority = models.IntegerField(default=DEFAULT)
    preemptible = models.BooleanField(default=True)

    array = models.ForeignKey(
        WorkloadArray, null=True, blank=True, on_delete=models.PROTECT, related_name="tasks", db_index=False
    )
    array_index = models.PositiveIntegerField(
        null=True, blank=True, help_text="Index of the task in its array."
    )
    attempt = models.PositiveIntegerField(
        default=1, help_text="Number of times that the task has been submitted."
    )
    superseded = models.BooleanField(default=False, help_text="Whether the task has a later attempt.")
    held = models.BooleanField(
        default=False,
        help_text="Whether a pending task waits for earlier tasks and is hidden from the scheduler.",
    )

    phase = models.CharField(max_length=10, choices=Phase.choices, default=Phase.PENDING)
    reason = models.CharField(max_length=40, blank=True)
    message = models.TextField(blank=True)
    since = models.DateTimeField(db_default=Now())
    pending_since = models.DateTimeField(
        db_default=Now(),
        help_text="Start of the last pending period, including the time with reserved resources.",
    )
    next_phase = models.CharField(
        max_length=10, choices=Phase.choices, blank=True, help_text="Phase after stopping."
    )

    submitted_at = models.DateTimeField(db_default=Now())
    requeued_at = models.DateTimeField(
        null=True,
        blank=True,
        help_text="Time of the last edit that increased the request. If set, it replaces the submission time "
        "in the order of the queue.",
    )
    started_at = models.DateTimeField(null=True, blank=True, help_text="Start of the current or last run.")
    first_started_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    last_checkpoint_at = models.DateTimeField(null=True, blank=True)
    stale_since = models.DateTimeField(null=True, blank=True)
    backoff_until = models.DateTimeField(null=True, blank=True)
    start_refusal = models.TextField(
        blank=True, help_text="Reason why the last start failed, as a clause. Cleared at the next start."
    )
    max_runtime = models.PositiveIntegerField(
        null=True, blank=True, help_text="Maximum runtime of one run, in seconds."
    )
    deadline = models.DateTimeField(null=True, blank=True)
    idle_timeout = models.PositiveIntegerField(
        null=True, blank=True, help_text="Seconds without log output or port requests."
    )
    run = models.PositiveIntegerField(default=0, help_text="Number of starts.")
    preemptions = models.PositiveIntegerField(default=0)
    restarts = models.PositiveIntegerField(default=0, help_text="Restarts by retry rules.")
    retries = models.JSONField(
        default=dict, blank=True, help_text="Restarts by failure kind, including restarts after node losses."
    )
    peer_failures = models.PositiveSmallIntegerField(
        default=0, editable=False,
        help_text="Runs in which a pod failed after another pod of its gang was lost, counted since the last "
        "run that made progress.",
    )  # fmt: skip
    avoided_nodes = ArrayField(
        models.CharField(max_length=64), default=list, blank=True,
        help_text="Nodes that the retry rules avoid, because the workload failed there.",
    )  # fmt: skip
    exit_code = models.IntegerField(null=True, blank=True)
    pool = models.ForeignKey(
        "pools.NodePool", null=True, blank=True, on_delete=models.PROTECT, related_name="+", db_index=False
    )
    rendezvous = models.JSONField(null=True, blank=True, help_text="Address and port of rank 0 in this run.")

    gpu_milli_min = models.BigIntegerField(default=0, help_text="Milli-GPUs requested by the minimum gang.")
    gpu_milli_now = models.BigIntegerField(
        default=0, help_text="Milli-GPUs allocated to the workload's pods."
    )
    explanation = models.JSONField(
        null=True, blank=True, help_text="Blockers, queue position and ordering from the last cycle."
    )
    explained_at = models.DateTimeField(null=True, blank=True)
    pending_reasons = models.JSONField(
        default=list,
        blank=True,
        editable=False,
        help_text="Main pending reasons in order, each with its start and end.",
    )
    version = models.PositiveBigIntegerField(default=1, editable=False)
    edits = models.PositiveIntegerField(default=0, editable=False, help_text="Number of document edits.")
    changed_in = models.BigIntegerField(
        default=0,
        editable=False,
        help_text=(
            "ID of the last transaction that changed a column the scheduler reads. Set by the database."
        ),
    )

    class Meta:
        ordering = ["-submitted_at", "-id"]
        indexes = [
            models.Index(fields=["changed_in"], name="workload_changed_in"),
            models.Index(fields=["phase", "project"], name="workload_phase_project"),
            models.Index(fields=["-submitted_at", "-id"], name="workload_newest"),
            models.Index(fields=["project", "-submitted_at"], name="workload_project_newest"),
            models.Index(
                fields=["first_started_at"],
                name="workload_first_started",
                condition=Q(first_started_at__isnull=False),
            ),
            models.Index(fields=["pool"], name="workload_pool", condition=Q(pool__isnull=False)),
            models.Index(
                fields=["project", "-ended_at"],
                name="workload_last_completed",
                condition=Q(phase="completed"),
            ),
            models.Index(fields=["-ended_at"], name="workload_last_failed", condition=Q(phase="failed")),
            models.Index(
                fields=["deadline"],
                name="workload_deadline",
                condition=Q(deadline__isnull=False) & ~Q(phase__in=["completed", "failed", "cancelled"]),
            ),
            models.Index(
                fields=["id"],
                name="workload_dependents",
                condition=Q(spec__has_key="after") & ~Q(phase__in=["completed", "failed", "cancelled"]),
            ),
            GinIndex(fields=["labels"], name="workload_labels", condition=HAS_LABELS),
            models.Index(fields=["code"], name="workload_code", condition=Q(code__isnull=False)),
            models.Index(
                fields=["code_fetch"], name="workload_code_fetch", condition=Q(code_fetch__isnull=False)
            ),
            models.Index(fields=["array"], name="workload_array", condition=Q(array__isnull=False)),
            models.Index(
                fields=["array", "phase", "held"],
                name="workload_array_counts",
                condition=Q(array__isnull=False, superseded=False),
            ),
            models.Index(
                fields=["array", "first_started_at"],
                name="workload_array_first_start",
                condition=Q(array__isnull=False, first_started_at__isnull=False),
            ),
            models.Index(fields=["array", "array_index"], name="workload_array_held", condition=Q(held=True)),
        ]
        constraints = [
            models.UniqueConstraint(
                name="workload_name_once_while_live",
                fields=["project", "name"],
                condition=~Q(phase__in=["completed", "failed", "cancelled"]),
            ),
            models.UniqueConstraint(
                name="workload_array_task_once",
                fields=["array", "array_index"],
                condition=Q(array__isnull=False, superseded=False),
            ),
            models.CheckConstraint(
                name="workload_task_has_an_index",
                condition=Q(array__isnull=True, array_index__isnull=True, held=False)
                | Q(array__isnull=False, array_index__isnull=False),
            ),
            models.CheckConstraint(
                name="workload_held_is_pending", condition=Q(held=False) | Q(phase="pending")
            ),
            models.CheckConstraint(
                name="workload_priority_range", condition=Q(priority__gte=0, priority__lte=1000)
            ),
            models.CheckConstraint(name="workload_names_a_pool", condition=Q(pools__len__gt=0)),
            models.CheckConstraint(
                name="workload_ended_has_a_time",
                condition=Q(ended_at__isnull=False) | ~Q(phase__in=["completed", "failed", "cancelled"]),
            ),
            models.CheckConstraint(
                name="workload_stopping_knows_where_to",
                condition=~Q(phase="stopping") | ~Q(next_phase=""),
            ),
        ]

    @property
    def handle(self) -> str:
        """Return PROJECT/NAME, which is unique among live workloads."""
        return f"{self.project.name}/{self.name}"

    def __str__(self) -> str:
        return self.name


class WorkloadDeletion(models.Model):
    """Record of a transaction that deleted live or recently ended workloads or pods.

    Written by database triggers.
    """

    deleted_in = models.BigIntegerField(editable=False)
    deleted_at = models.DateTimeField(db_default=Now(), editable=False)

    def __str__(self) -> str:
        return str(self.deleted_in)


class WorkloadRole(models.Model):
    """Role of a workload, with `min` to `max` replicas. Role groups are stored only in the document."""

    # No separate index is needed, because `role_position_once` covers this column.
    workload = models.ForeignKey(Workload, on_delete=models.CASCADE, related_name="roles", db_index=False)
    position = models.PositiveIntegerField(help_text="Position in the document.")
    name = models.CharField(max_length=63)
    min = models.PositiveIntegerField()
    max = models.PositiveIntegerField()
    gpu_milli = models.PositiveIntegerField(default=0, help_text="Per device.")
    gpu_devices = models.PositiveIntegerField(default=0)
    gpu_memory_mib = models.PositiveIntegerField(default=0)
    cpu_milli = models.PositiveIntegerField(default=0)
    memory_mib = models.PositiveIntegerField(default=0)

    class Meta:
        ordering = ["workload", "position"]
        constraints = [
            models.UniqueConstraint(name="role_position_once", fields=["workload", "position"]),
            models.CheckConstraint(name="role_min_within_max", condition=Q(min__lte=F("max"))),
            models.CheckConstraint(
                name="role_shares_at_most_one_device_each", condition=Q(gpu_milli__lte=1000)
            ),
            models.CheckConstraint(
                name="role_asks_by_share_or_by_memory", condition=Q(gpu_milli=0) | Q(gpu_memory_mib=0)
            ),
        ]

    def __str__(self) -> str:
        return self.name


class Pod(FastRows):
    """Replica of a role, placed on a node. Pending replicas have no row."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    workload = models.ForeignKey(Workload, on_delete=models.CASCADE, related_name="pods")
    role = models.CharField(max_length=63)
    index = models.PositiveIntegerField()
    run = models.PositiveIntegerField(help_text="Run number within the workload.")
    rank = models.PositiveIntegerField(default=0, help_text="Value of RANK in the run.")
    node = models.ForeignKey("pools.Node", on_delete=models.PROTECT, related_name="pods")
    state = models.CharField(max_length=10, choices=PodState.choices, default=PodState.STARTING)
    since = models.DateTimeField(db_default=Now())
    created_at = models.DateTimeField(db_default=Now())
    started_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    stop_reason = models.CharField(max_length=40, blank=True, help_text="Reason for stopping.")
    signalled_at = models.DateTimeField(null=True, blank=True, help_text="Time of the signal before SIGTERM.")
    exit_code = models.IntegerField(null=True, blank=True)
    signal = models.IntegerField(null=True, blank=True)
    message = models.TextField(blank=True)
    address = models.CharField(
        max_length=64,
        blank=True,
        help_text="The pod's own network address. Empty if the pod uses its node's address.",
    )
    endpoint = models.JSONField(null=True, blank=True, help_text="Address and port for serving.")
    ports = models.JSONField(
        null=True, blank=True, help_text="Address and port number of each opened port, by name."
    )
    limits = models.JSONField(default=dict, blank=True, help_text="Memory and CPU limits with their sources.")
    memory_peak_mib = models.PositiveBigIntegerField(null=True, blank=True)
    warnings = models.PositiveIntegerField(default=0, help_text="Number of warnings during the run.")
    files_until = models.DateTimeField(
        null=True, blank=True, help_text="Time until which the node keeps the failed pod's files."
    )
    changed_in = models.BigIntegerField(
        default=0,
        editable=False,
        help_text=(
            "ID of the last transaction that changed a column the scheduler reads. Set by the database."
        ),
    )

    class Meta:
        ordering = ["workload", "run", "role", "index"]
        indexes = [
            models.Index(fields=["changed_in"], name="pod_changed_in"),
            models.Index(fields=["node"], name="pod_on_node_live", condition=Q(state__in=LIVE_POD_STATES)),
            models.Index(fields=["state"], name="pod_live", condition=Q(state__in=LIVE_POD_STATES)),
            models.Index(
                fields=["files_until"], name="pod_with_files", condition=Q(files_until__isnull=False)
            ),
        ]
        constraints = [
            models.UniqueConstraint(
                name="pod_once_while_live",
                fields=["workload", "role", "index"],
                condition=Q(state__in=["starting", "running", "stopping"]),
            ),
            models.CheckConstraint(
                name="pod_ended_has_a_time",
                condition=Q(ended_at__isnull=False) | Q(state__in=["starting", "running", "stopping"]),
            ),
        ]

    @property
    def name(self) -> str:
        return f"{self.workload.name}-{self.role}-{self.index}"

    def __str__(self) -> str:
        return self.name
