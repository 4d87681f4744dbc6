"""Database models of joined machines, their join tokens and their use as nodes."""

from django.db import models
from django.db.models import Q

from pools.models.pool import NodePool


class JoinToken(models.Model):
    """Token that machines use to join one pool. Only the secret's digest and prefix are stored."""

    pool = models.ForeignKey(NodePool, on_delete=models.PROTECT, related_name="join_tokens")
    digest = models.CharField(max_length=64, unique=True)
    prefix = models.CharField(max_length=16, default="", help_text="First characters of the token.")
    comment = models.CharField(max_length=100, blank=True, default="", help_text="Purpose of the token.")
    issued_by = models.CharField(max_length=150)
    issued_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    max_machines = models.PositiveIntegerField(default=1, help_text="Number of machines that may join.")
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-issued_at", "-pk"]
        constraints = [
            models.CheckConstraint(name="join_token_admits_a_machine", condition=Q(max_machines__gte=1)),
        ]

    def __str__(self) -> str:
        return f"token of {self.pool_id} from {self.issued_at:%Y-%m-%d %H:%M}"


class Machine(models.Model):
    """Machine that has joined a pool, with its detected capacity.

    A machine is free if no node uses it.
    """

    pool = models.ForeignKey(NodePool, on_delete=models.PROTECT, related_name="machines")
    name = models.CharField(max_length=64)
    machine_id = models.CharField(
        max_length=64,
        blank=True,
        default="",
        help_text="ID that does not change when the machine is reinstalled.",
    )
    secret_version = models.PositiveIntegerField(
        default=1,
        help_text="Incremented whenever the machine joins again, which revokes its previous secret.",
    )
    address = models.CharField(max_length=255)
    cpu_milli = models.PositiveIntegerField()
    memory_mib = models.PositiveIntegerField()
    devices = models.JSONField(default=list, help_text="Physical ID of each device, in order.")
    gpu_model = models.CharField(max_length=64, blank=True)
    inventory = models.JSONField(
        default=dict,
        blank=True,
        help_text="Software versions, processor, disk and GPUs, as last reported by the agent.",
    )
    joined_at = models.DateTimeField()
    last_seen_at = models.DateTimeField(help_text="Time of the last report.")
    removed_at = models.DateTimeField(
        null=True,
        blank=True,
        help_text="Time of the removal request. The machine leaves the pool once it has no pods.",
    )
    departed_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["pool__name", "name", "pk"]
        constraints = [
            models.UniqueConstraint(
                name="machine_name_unique_while_there",
                fields=["pool", "name"],
                condition=Q(departed_at__isnull=True),
            ),
            models.UniqueConstraint(
                name="machine_id_unique_in_pool", fields=["pool", "machine_id"], condition=~Q(machine_id="")
            ),
        ]

    def __str__(self) -> str:
        return self.name


class JoinTokenUse(models.Model):
    """Record of a machine that joined with a token. A machine that joins again counts only once."""

    token = models.ForeignKey(JoinToken, on_delete=models.CASCADE, related_name="uses")
    machine = models.ForeignKey(Machine, on_delete=models.CASCADE, related_name="token_uses")
    used_at = models.DateTimeField()

    class Meta:
        ordering = ["pk"]
        constraints = [
            models.UniqueConstraint(name="join_token_counts_a_machine_once", fields=["token", "machine"]),
        ]

    def __str__(self) -> str:
        return f"{self.machine_id} with token {self.token_id}"


class MachineUse(models.Model):
    """Use of a machine as a node, from the launch request to the node's end.

    Each use is an instance of the static provider.
    """

    machine = models.ForeignKey(Machine, on_delete=models.PROTECT, related_name="uses")
    client_token = models.CharField(max_length=64)
    ordinal = models.PositiveIntegerField()
    began_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["pk"]
        constraints = [
            models.UniqueConstraint(
                name="machine_used_once_at_a_time", fields=["machine"], condition=Q(ended_at__isnull=True)
            ),
        ]

    def __str__(self) -> str:
        return f"{self.machine_id} as {self.ordinal}"
