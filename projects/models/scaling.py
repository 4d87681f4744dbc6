"""Models for inference services: engines, scale requests and their steps."""

import uuid

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from projects.models.workloads import Workload


class EngineState(models.TextChoices):
    CREATING = "CREATING"  # the workload is pending, or the process is starting
    CONNECTING = "CONNECTING"
    HEALTH_CHECKING = "HEALTH_CHECKING"
    WEIGHT_SYNCING = "WEIGHT_SYNCING"
    READY = "READY"
    ACTIVE = "ACTIVE"
    DRAINING = "DRAINING"
    REMOVING = "REMOVING"
    REMOVED = "REMOVED"
    FAILED = "FAILED"


class Origin(models.TextChoices):
    INITIAL = "initial"
    MANAGED = "managed"  # runs on GPUs that the scheduler allocated
    EXTERNAL = "external"  # runs outside Berth and was added by URL


class Direction(models.TextChoices):
    OUT = "scale_out", "Scale-out"
    IN = "scale_in", "Scale-in"


class RequestStatus(models.TextChoices):
    PENDING = "PENDING"
    CREATING = "CREATING"
    CONNECTING = "CONNECTING"
    HEALTH_CHECKING = "HEALTH_CHECKING"
    WEIGHT_SYNCING = "WEIGHT_SYNCING"
    READY = "READY"
    ROLLING_BACK = "ROLLING_BACK"
    DRAINING = "DRAINING"
    REMOVING = "REMOVING"
    ACTIVE = "ACTIVE"
    PARTIAL = "PARTIAL"
    COMPLETED = "COMPLETED"
    NOOP = "NOOP"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


FINAL_STATUSES = ("ACTIVE", "PARTIAL", "COMPLETED", "NOOP", "FAILED", "CANCELLED")
ENDED_STATES = (EngineState.REMOVED, EngineState.FAILED)


class Service(models.Model):
    """Inference service. Its initial engines belong to its workload's gang."""

    workload = models.OneToOneField(Workload, on_delete=models.CASCADE, related_name="service")
    model_name = models.CharField(max_length=200, default="default")
    role = models.CharField(max_length=63, help_text="Role whose replicas are the engines.")
    initial_engines = models.PositiveIntegerField()
    next_number = models.PositiveIntegerField(help_text="Number of the next engine to add.")
    updating_since = models.DateTimeField(
        null=True,
        blank=True,
        help_text="Time at which a trainer began to update the initial engines' weights.",
    )
    syncing_since = models.DateTimeField(
        null=True,
        blank=True,
        help_text="Time at which the current transfer of model weights started. Empty if there is none.",
    )
    weight_version = models.CharField(
        max_length=200, blank=True, help_text="Weight version of the initial engines."
    )
    looked_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(db_default=Now())
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-created_at", "-id"]
        indexes = [
            models.Index(fields=["id"], name="service_live", condition=Q(ended_at__isnull=True)),
        ]

    def __str__(self) -> str:
        return self.workload.name


class ScaleRequest(models.Model):
    """Request for more or fewer inference engines. `ends_as` is the status in which a rollback will end."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    service = models.ForeignKey(Service, on_delete=models.CASCADE, related_name="requests")
    direction = models.CharField(max_length=9, choices=Direction.choices)
    mode = models.CharField(max_length=8, choices=[("managed", "managed"), ("external", "external")])
    status = models.CharField(max_length=15, choices=RequestStatus.choices, default=RequestStatus.PENDING)
    ends_as = models.CharField(max_length=9, blank=True)
    model_name = models.CharField(max_length=200)
    num_replicas = models.PositiveIntegerField(default=0)
    engine_urls = models.JSONField(default=list)
    timeout_secs = models.FloatField()
    policy = models.CharField(max_length=12, blank=True, help_text="Policy: rollback_all or keep_partial.")
    force = models.BooleanField(default=False)
    requested_by = models.CharField(max_length=150)
    by_autoscaler = models.BooleanField(default=False)
    reason = models.TextField(blank=True)
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)
    deadline = models.DateTimeField()
    error_message = models.TextField(blank=True)
    failure = models.CharField(
        max_length=11, blank=True, help_text="Cause: provision, init, health, weight_sync, router or timeout."
    )
    failed_engines = models.JSONField(default=list)
    weight_version = models.CharField(max_length=200, blank=True)

    class Meta:
        ordering = ["-created_at", "-id"]
        indexes = [models.Index(fields=["service", "-created_at", "-id"], name="scale_request_newest")]
        constraints = [
            models.UniqueConstraint(
                name="one_scale_request_at_a_time",
                fields=["service"],
                condition=~Q(status__in=FINAL_STATUSES),
            ),
            models.CheckConstraint(
                name="scale_request_ended_has_a_time",
                condition=Q(ended_at__isnull=False, status__in=FINAL_STATUSES)
                | (Q(ended_at__isnull=True) & ~Q(status__in=FINAL_STATUSES)),
            ),
        ]

    @property
    def is_final(self) -> bool:
        return self.status in FINAL_STATUSES

    def __str__(self) -> str:
        return f"{self.get_direction_display()} of {self.service}"


class ScaleStep(models.Model):
    """Status transition of a scale request. Append-only."""

    request = models.ForeignKey(ScaleRequest, on_delete=models.CASCADE, related_name="steps")
    at = models.DateTimeField()
    status = models.CharField(max_length=15, choices=RequestStatus.choices)
    message = models.TextField(blank=True)

    class Meta:
        ordering = ["id"]

    def __str__(self) -> str:
        return f"{self.request_id}: {self.status}"


class InferenceEngine(models.Model):
    """Inference engine of a service.

    `router_url` is stored before the router is called, so that a crash leaves no stale entry.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    service = models.ForeignKey(Service, on_delete=models.CASCADE, related_name="engines")
    number = models.PositiveIntegerField()
    origin = models.CharField(max_length=8, choices=Origin.choices)
    state = models.CharField(max_length=15, choices=EngineState.choices)
    since = models.DateTimeField()
    workload = models.ForeignKey(
        Workload, null=True, blank=True, on_delete=models.SET_NULL, related_name="engines"
    )
    index = models.PositiveIntegerField(default=0, help_text="Replica index in the workload's role.")
    pod_id = models.UUIDField(null=True, blank=True, help_text="Pod that serves at this address.")
    url = models.CharField(max_length=500, blank=True)
    router_url = models.CharField(max_length=500, blank=True)
    is_routed = models.BooleanField(
        default=False, help_text="Whether the router has confirmed the engine's registration."
    )
    isolated_at = models.DateTimeField(
        null=True, blank=True, help_text="Time at which the router stopped sending new requests."
    )
    is_healthy = models.BooleanField(default=False)
    failures = models.PositiveIntegerField(default=0, help_text="Consecutive failed health checks.")
    connection_failures = models.PositiveIntegerField(
        default=0, help_text="Consecutive failed connections to an external engine."
    )
    looked_at = models.DateTimeField(null=True, blank=True)
    running = models.PositiveIntegerField(null=True, blank=True, help_text="Number of running requests.")
    weight_version = models.CharField(max_length=200, blank=True)
    sync = models.CharField(
        max_length=7, blank=True, help_text="State of the weight copy: copying, done or failed."
    )
    sync_message = models.TextField(blank=True)
    sync_tried_at = models.DateTimeField(null=True, blank=True)
    router_message = models.TextField(blank=True)
    added_by = models.ForeignKey(
        ScaleRequest, null=True, blank=True, on_delete=models.SET_NULL, related_name="added"
    )
    removed_by = models.ForeignKey(
        ScaleRequest, null=True, blank=True, on_delete=models.SET_NULL, related_name="removed"
    )
    ends_as = models.CharField(
        max_length=7, blank=True, help_text="Final state after removal: REMOVED or FAILED."
    )
    failure = models.CharField(max_length=11, blank=True)
    message = models.TextField(blank=True)
    created_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["service", "number"]
        indexes = [
            models.Index(
                fields=["service"], name="engine_live", condition=Q(ended_at__isnull=True) | ~Q(router_url="")
            )
        ]
        constraints = [
            models.UniqueConstraint(name="engine_number_once", fields=["service", "number"]),
            models.UniqueConstraint(
                name="engine_url_once_while_live", fields=["service", "url"],
                condition=Q(ended_at__isnull=True, origin="external"),
            ),
            models.CheckConstraint(
                name="engine_ended_has_a_time",
                condition=Q(ended_at__isnull=False, state__in=ENDED_STATES)
                | (Q(ended_at__isnull=True) & ~Q(state__in=ENDED_STATES)),
            ),
        ]  # fmt: skip

    @property
    def name(self) -> str:
        return f"engine_{self.number}"

    def __str__(self) -> str:
        return self.name
