"""Models of scheduler decisions: cycles, allocations, evictions and usage."""

from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import BrinIndex
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from berth.db.queries.fast_rows import FastRows


class Cycle(models.Model):
    """One cycle of the scheduler loop, with its snapshot, decisions and step durations in milliseconds."""

    at = models.DateTimeField(db_default=Now(), editable=False)
    epoch = models.BigIntegerField(
        help_text="Increases whenever another scheduler process becomes the leader."
    )
    trigger = models.CharField(max_length=40)
    observe_ms = models.FloatField(default=0)
    decide_ms = models.FloatField(default=0)
    commit_ms = models.FloatField(default=0)
    nodes = models.PositiveIntegerField(default=0)
    workloads = models.PositiveIntegerField(default=0)
    pending = models.PositiveIntegerField(default=0)
    bundles = models.PositiveIntegerField(default=0)
    applied = models.PositiveIntegerField(default=0)
    stale = models.PositiveIntegerField(
        default=0, help_text="Decisions dropped because the data had changed before they could be applied."
    )
    evictions = models.PositiveIntegerField(default=0)
    trials = models.PositiveIntegerField(default=0)
    engine = models.CharField(max_length=64, blank=True)
    snapshot = models.BinaryField(
        null=True, help_text="Compressed snapshot and plan, deleted after the retention period."
    )
    plan = models.JSONField(null=True)
    notes = models.JSONField(
        default=list, help_text="Descriptions of inconsistent rows that the cycle skipped."
    )

    class Meta:
        ordering = ["-id"]
        indexes = [BrinIndex(fields=["at"], name="cycle_time")]

    def __str__(self) -> str:
        return f"Cycle {self.pk}"


class Allocation(FastRows):
    """Node resources allocated to one pod until its processes have ended."""

    pod = models.OneToOneField("projects.Pod", on_delete=models.CASCADE, related_name="allocation")
    node = models.ForeignKey("pools.Node", on_delete=models.PROTECT, related_name="allocations")
    devices = ArrayField(models.PositiveIntegerField(), default=list, help_text="Device indices on the node.")
    gpu_milli = models.PositiveIntegerField(default=0, help_text="Share of each device, in thousandths.")
    cpu_milli = models.PositiveIntegerField(default=0)
    memory_mib = models.PositiveIntegerField(default=0)
    bound_at = models.DateTimeField(db_default=Now())
    released_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        indexes = [
            models.Index(fields=["node"], name="allocation_active", condition=Q(released_at__isnull=True)),
            models.Index(fields=["released_at"], name="allocation_released"),
        ]
        constraints = [
            models.CheckConstraint(
                name="allocation_at_most_one_device_each", condition=Q(gpu_milli__lte=1000)
            ),
            models.CheckConstraint(
                name="allocation_devices_with_gpu", condition=Q(devices__len=0) | Q(gpu_milli__gt=0)
            ),
        ]

    def __str__(self) -> str:
        return f"{self.pod} on {self.node}"

    @property
    def gpu_milli_total(self) -> int:
        return self.gpu_milli * len(self.devices)


class DeviceClaim(models.Model):
    """Fraction of one device that belongs to an active allocation.

    A trigger limits the sum per device to 1000.
    """

    allocation = models.ForeignKey(
        Allocation, on_delete=models.CASCADE, related_name="claims", db_index=False
    )
    node = models.ForeignKey("pools.Node", on_delete=models.PROTECT, related_name="+")
    device = models.PositiveIntegerField()
    milli = models.PositiveIntegerField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                name="claim_once_per_allocation_and_device", fields=["allocation", "device"]
            ),
            models.UniqueConstraint(
                name="claim_whole_device_once", fields=["node", "device"], condition=Q(milli=1000)
            ),
            models.CheckConstraint(name="claim_milli_range", condition=Q(milli__gte=1, milli__lte=1000)),
        ]


class Reservation(FastRows):
    """Capacity reserved for one replica that cannot start yet."""

    workload = models.ForeignKey(
        "projects.Workload", on_delete=models.CASCADE, related_name="reservations", db_index=False
    )
    role = models.CharField(max_length=63)
    index = models.PositiveIntegerField()
    node = models.ForeignKey("pools.Node", on_delete=models.CASCADE, related_name="reservations")
    devices = ArrayField(models.PositiveIntegerField(), default=list)
    gpu_milli = models.PositiveIntegerField(default=0)
    since = models.DateTimeField(db_default=Now())
    expires_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                name="reservation_once_per_replica", fields=["workload", "role", "index"]
            ),
        ]

    def __str__(self) -> str:
        return f"{self.workload}-{self.role}-{self.index} on {self.node}"


class Eviction(models.Model):
    """Audit row of one eviction: victim, preemptor and rule.

    IDs and names are copied because audit rows outlive the workloads.
    """

    KINDS = [
        (k, k) for k in ("shrink", "consolidate", "reclaim", "preempt", "stale_gang", "drain", "cluster")
    ]

    at = models.DateTimeField(db_default=Now(), editable=False)
    cycle = models.BigIntegerField(null=True, help_text="ID of the cycle that decided the eviction.")
    kind = models.CharField(max_length=12, choices=KINDS)
    pool_id = models.BigIntegerField()
    pool_name = models.CharField(max_length=63)
    workload_id = models.UUIDField()
    workload_name = models.CharField(max_length=63)
    project_id = models.BigIntegerField()
    project_name = models.CharField(max_length=63)
    department_id = models.BigIntegerField()
    department_name = models.CharField(max_length=63)
    preemptor_id = models.UUIDField(null=True)
    preemptor_name = models.CharField(max_length=63, blank=True)
    preemptor_project_id = models.BigIntegerField(null=True)
    preemptor_project_name = models.CharField(max_length=63, blank=True)
    rule = models.TextField()
    numbers = models.JSONField(
        default=dict,
        help_text="Quota, share, allocation and usage of both queues, and the rejected alternatives.",
    )
    pods = models.JSONField(default=list)
    entire_workload = models.BooleanField(default=True)
    gpu_milli = models.BigIntegerField(default=0)
    lost_gpu_seconds = models.BigIntegerField(default=0)

    class Meta:
        ordering = ["-id"]
        indexes = [
            models.Index(fields=["workload_id", "-id"], name="eviction_of_workload"),
            models.Index(fields=["preemptor_id", "-id"], name="eviction_for_workload"),
            models.Index(fields=["project_id", "-id"], name="eviction_of_project"),
            models.Index(fields=["preemptor_project_id", "-id"], name="eviction_for_project"),
            BrinIndex(fields=["at"], name="eviction_time"),
        ]

    def __str__(self) -> str:
        preemptor = f" for {self.preemptor_name}" if self.preemptor_name else ""
        return f"Eviction of {self.workload_name}{preemptor}"


class Usage(FastRows):
    """Decayed usage of one queue in one pool at the time `settled_at`, in unit-seconds per resource."""

    pool = models.ForeignKey("pools.NodePool", on_delete=models.CASCADE, related_name="+")
    department = models.ForeignKey(
        "projects.Department", null=True, on_delete=models.CASCADE, related_name="+"
    )
    project = models.ForeignKey("projects.Project", null=True, on_delete=models.CASCADE, related_name="+")
    used = ArrayField(models.FloatField(), size=3)
    parent = ArrayField(models.FloatField(), size=3)
    held = ArrayField(models.BigIntegerField(), size=3, help_text="Allocation since `settled_at`.")
    rate = ArrayField(models.FloatField(), size=3, help_text="Amount charged per second since `settled_at`.")
    parent_rate = ArrayField(models.FloatField(), size=3)
    settled_at = models.DateTimeField()

    class Meta:
        verbose_name = "decayed usage"
        verbose_name_plural = "decayed usage"
        constraints = [
            models.UniqueConstraint(name="usage_once_per_department_and_pool", fields=["department", "pool"]),
            models.UniqueConstraint(name="usage_once_per_project_and_pool", fields=["project", "pool"]),
            models.CheckConstraint(
                name="usage_has_one_owner",
                condition=Q(department__isnull=False, project__isnull=True)
                | Q(department__isnull=True, project__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.project or self.department} in pool {self.pool}"


class UsagePoint(models.Model):
    """Earlier state of a usage ledger, which sliding windows use to compute expired usage."""

    usage = models.ForeignKey(Usage, on_delete=models.CASCADE, related_name="points", db_index=False)
    at = models.DateTimeField()
    used = ArrayField(models.FloatField(), size=3)
    parent = ArrayField(models.FloatField(), size=3)

    class Meta:
        constraints = [models.UniqueConstraint(name="usage_point_once", fields=["usage", "at"])]


class UsageHour(models.Model):
    """One user's usage in one project and pool during one hour, based on released allocations.

    IDs and names are copied because the rows outlive the project, user and pool.
    """

    hour = models.DateTimeField()
    pool_id = models.BigIntegerField()
    pool_name = models.CharField(max_length=63)
    department_id = models.BigIntegerField()
    department_name = models.CharField(max_length=63)
    project_id = models.BigIntegerField()
    project_name = models.CharField(max_length=63)
    user_name = models.CharField(
        max_length=150, blank=True, help_text="Submitter. Empty for Berth's own workloads."
    )
    gpu_milli_seconds = models.BigIntegerField(default=0)
    cpu_milli_seconds = models.BigIntegerField(default=0)
    memory_mib_seconds = models.BigIntegerField(default=0)

    class Meta:
        verbose_name = "hourly usage"
        verbose_name_plural = "hourly usage"
        constraints = [
            models.UniqueConstraint(
                name="usage_hour_once", fields=["hour", "pool_id", "project_id", "user_name"]
            )
        ]
        indexes = [models.Index(fields=["project_id", "hour"], name="usage_hour_of_project")]

    def __str__(self) -> str:
        return f"{self.project_name} in pool {self.pool_name}, {self.hour:%Y-%m-%d %H:%M}"


def zero_amounts() -> list[int]:
    """Return zero amounts of GPU, CPU and memory, as a field's default."""
    return [0, 0, 0]


class QueueStatus(FastRows):
    """Status of one queue in one pool after the last cycle.

    `reserved` contains the resources that are set aside for replicas that cannot start yet.
    """

    pool = models.ForeignKey("pools.NodePool", on_delete=models.CASCADE, related_name="queue_statuses")
    department = models.ForeignKey(
        "projects.Department", null=True, on_delete=models.CASCADE, related_name="queue_statuses"
    )
    project = models.ForeignKey(
        "projects.Project", null=True, on_delete=models.CASCADE, related_name="queue_statuses"
    )
    share = ArrayField(models.BigIntegerField(), size=3)
    allocated = ArrayField(models.BigIntegerField(), size=3)
    reserved = ArrayField(models.BigIntegerField(), size=3, default=zero_amounts)
    requested = ArrayField(models.BigIntegerField(), size=3)
    usage = ArrayField(models.FloatField(), size=3)
    at = models.DateTimeField()

    class Meta:
        verbose_name = "fair share"
        constraints = [
            models.UniqueConstraint(
                name="queue_status_once_per_department_and_pool", fields=["department", "pool"]
            ),
            models.UniqueConstraint(
                name="queue_status_once_per_project_and_pool", fields=["project", "pool"]
            ),
        ]

    def __str__(self) -> str:
        return f"{self.project or self.department} in pool {self.pool}"


class PodUtilization(models.Model):
    """Latest measurement of a pod's processes and devices."""

    pod = models.OneToOneField("projects.Pod", primary_key=True, on_delete=models.CASCADE, related_name="use")
    at = models.DateTimeField()
    cpu_seconds = models.FloatField(help_text="CPU time since the pod started.")
    cpu_milli = models.PositiveIntegerField(help_text="Mean CPU usage since the previous measurement.")
    memory_mib = models.PositiveIntegerField()
    devices = models.JSONField(
        default=list,
        help_text="For each device, utilization in thousandths and MiB in use. Null if not measured.",
    )
    busy_at = models.DateTimeField(
        null=True, help_text="Time at which the GPUs were last busy or first measured. Null if not measured."
    )


class NodeUtilization(models.Model):
    """Latest measurement of a node's GPUs. Nodes that were never measured have no row."""

    node = models.OneToOneField("pools.Node", primary_key=True, on_delete=models.CASCADE, related_name="use")
    at = models.DateTimeField()
    devices = models.JSONField(help_text="Measurements of each device, as in PodUtilization.")


class UtilizationPoint(models.Model):
    """A pod's utilization in one minute or hour, as sums over the measured seconds."""

    pod = models.ForeignKey(
        "projects.Pod", on_delete=models.CASCADE, related_name="use_points", db_index=False
    )
    step = models.PositiveSmallIntegerField(help_text="Length in seconds: 60 or 3600.")
    at = models.DateTimeField(help_text="Start of the minute or hour.")
    seconds = models.FloatField()
    cpu_milli_seconds = models.FloatField()
    memory_mib = models.PositiveIntegerField(help_text="Peak memory.")
    gpu_milli_seconds = models.FloatField(help_text="Portion of the pod's GPU allocation that was measured.")
    gpu_busy_milli_seconds = models.FloatField()
    gpu_memory_mib = models.PositiveIntegerField(null=True, help_text="Maximum over the pod's devices.")

    class Meta:
        constraints = [models.UniqueConstraint(name="use_point_once", fields=["pod", "step", "at"])]
        indexes = [models.Index(fields=["step", "at"], name="use_point_time")]
