"""Database model of a node, from its launch request to its end."""

from django.db import models
from django.db.models import Q
from django.utils import timezone

from berth.db.queries.fast_rows import FastRows
from pools.models.pool import NodePool


class NodeState(models.TextChoices):
    REQUESTED = "requested"  # the provider accepted the request, but does not list the instance yet
    BOOTING = "booting"  # the provider lists the instance, but it is not usable yet
    READY = "ready"
    CORDONED = "cordoned"  # running pods continue, but the node accepts no new pods
    DRAINING = "draining"  # the node accepts no new pods, and ends after its last pod
    LOST = "lost"  # the instance has disappeared or never appeared, so the node will end soon
    ENDED = "ended"


PENDING = (NodeState.REQUESTED, NodeState.BOOTING)
USABLE = (NodeState.READY, NodeState.CORDONED)
HOSTING = (NodeState.READY, NodeState.CORDONED, NodeState.DRAINING)
ALIVE = (*PENDING, *HOSTING, NodeState.LOST)


class Node(FastRows):
    """Node of a pool.

    The node's capacity comes from the launch request, unless the provider reports other values.
    """

    State = NodeState

    pool = models.ForeignKey(NodePool, on_delete=models.PROTECT, related_name="nodes")
    name = models.CharField(max_length=64)
    ordinal = models.PositiveIntegerField(help_text="0 for the pool's head node.")
    state = models.CharField(max_length=16, choices=NodeState, default=NodeState.REQUESTED)
    instance_id = models.CharField(max_length=300)
    client_token = models.CharField(
        max_length=64, blank=True, help_text="Token of the launch request that created the node."
    )
    address = models.CharField(max_length=255, blank=True)

    gpus = models.PositiveIntegerField(default=0)
    gpu_model = models.CharField(max_length=64, blank=True)
    gpu_memory_mib = models.PositiveIntegerField(default=0)
    cpu_milli = models.PositiveIntegerField()
    memory_mib = models.PositiveIntegerField()
    max_pods = models.PositiveIntegerField(default=110)
    labels = models.JSONField(default=dict, blank=True)
    taints = models.JSONField(default=list, blank=True)
    devices = models.JSONField(default=list, blank=True, help_text="Physical ID of each device.")

    # Set only for machines that Berth shares with other users.
    obstacle = models.CharField(
        max_length=500, blank=True, help_text="Reason why the provider's machine accepts no new pods."
    )
    foreign = models.JSONField(
        default=dict, blank=True, help_text="Resources that foreign pods use: gpus, cpu_milli and so on."
    )
    foreign_devices = models.JSONField(
        default=list, blank=True, help_text="Indexes of devices that are unavailable because of foreign pods."
    )

    environment = models.ForeignKey(
        "pools.Environment", on_delete=models.PROTECT, null=True, related_name="nodes"
    )
    phases = models.JSONField(default=list, blank=True, help_text="Installation phases, in order.")
    prepared_at = models.DateTimeField(
        null=True, blank=True, help_text="Time at which the environment was installed."
    )

    isolation = models.JSONField(
        null=True, blank=True, help_text="Isolation of the node's pods, as last reported by its agent."
    )

    inventory = models.JSONField(
        default=dict,
        blank=True,
        help_text="Software versions, processor, disk and GPUs, as last reported by the agent.",
    )
    upgrade_to = models.CharField(
        max_length=100,
        blank=True,
        default="",
        help_text="Target version of the agent upgrade. Empty if no upgrade is requested.",
    )
    not_ready_reason = models.TextField(
        blank=True,
        default="",
        help_text="Reason why a booting node is not ready yet, such as a failed probe pod.",
    )

    eviction_reason = models.TextField(
        blank=True,
        default="",
        help_text="Reason why the provider reclaimed the machine, if it did.",
    )

    queued = models.BooleanField(
        default=False, help_text="Whether the provider has queued the launch request."
    )

    since = models.DateTimeField(help_text="Time of the last state change.")
    ready_at = models.DateTimeField(
        null=True,
        blank=True,
        help_text="Time at which the node became ready, or is expected to become ready.",
    )
    joined_at = models.DateTimeField(null=True, blank=True, help_text="Time at which the machine joined.")
    interruption_at = models.DateTimeField(
        null=True,
        blank=True,
        help_text="Time at which the provider reclaims the machine, for example in a spot interruption.",
    )
    drain_started_at = models.DateTimeField(null=True, blank=True)
    drained_by_scaling = models.BooleanField(
        default=False,
        help_text="Whether scaling started the drain. Such a drain ends when the node is needed again.",
    )
    drain_reason = models.CharField(max_length=255, blank=True)
    emptied_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["pool__name", "ordinal", "pk"]
        indexes = [models.Index(fields=["pool", "state"], name="node_pool_state")]
        constraints = [
            models.UniqueConstraint(
                name="node_name_unique_while_alive", fields=["name"], condition=~Q(state="ended")
            ),
            models.UniqueConstraint(
                name="node_ordinal_unique_while_alive",
                fields=["pool", "ordinal"],
                condition=~Q(state="ended"),
            ),
            models.UniqueConstraint(name="node_instance_once", fields=["pool", "instance_id"]),
            models.CheckConstraint(name="node_state_known", condition=Q(state__in=NodeState.values)),
            models.CheckConstraint(name="node_instance_named", condition=~Q(instance_id="")),
            models.CheckConstraint(
                name="node_ended_has_a_time",
                condition=Q(state="ended", ended_at__isnull=False)
                | (~Q(state="ended") & Q(ended_at__isnull=True)),
            ),
            models.CheckConstraint(
                name="node_draining_has_a_start",
                condition=~Q(state="draining") | Q(drain_started_at__isnull=False),
            ),
            models.CheckConstraint(name="node_max_pods_positive", condition=Q(max_pods__gte=1)),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def usable_gpus(self) -> int:
        """Number of GPUs, excluding those used by pods that Berth does not manage."""
        return self.gpus - len(self.foreign_devices)
