"""Database models of a node pool and its former prices."""

from collections.abc import Mapping

from django.db import models
from django.db.models import F, Q

from berth.db.queries.fast_rows import FastRows
from berth.db.writes.checks import CombinedChecks
from pools.engine.boots import should_stop_provisioning


class NodePool(CombinedChecks, FastRows):
    """Pool of nodes that have one shape and provider and are scaled together. Durations are in seconds."""

    # Private SSH keys by secret name, for the preview of a pool that is not stored yet.
    unstored_ssh_keys: Mapping[str, str] | None = None

    class Provider(models.TextChoices):
        LOCAL = "local"
        STATIC = "static"
        FAKE = "fake"
        AWS = "aws"
        KUBERNETES = "kubernetes"
        SSH = "ssh", "SSH"
        SLURM = "slurm"

    class Runtime(models.TextChoices):
        LOCAL = "local"
        FAKE = "fake"
        RAY = "ray"
        KUBERNETES = "kubernetes"

    class Placement(models.TextChoices):
        BINPACK = "binpack"
        SPREAD = "spread"
        FRAGMENTATION = "fragmentation"
        AUTO = "auto"

    class FairShare(models.TextChoices):
        POINT_IN_TIME = "point_in_time"
        TIME_BASED = "time_based"

    class NodeConsolidation(models.TextChoices):
        NEVER = "never"  # only the autoscaler removes nodes
        WHEN_EMPTY = "when_empty"  # empty nodes are released, too
        WHEN_UNDERUTILIZED = "when_underutilized"  # nodes whose pods fit elsewhere are released, too

    name = models.SlugField(max_length=40, unique=True)
    provider = models.CharField(max_length=16, choices=Provider, default=Provider.LOCAL)
    runtime = models.CharField(max_length=16, choices=Runtime, default=Runtime.LOCAL)
    provider_settings = models.JSONField(
        default=dict, blank=True, help_text="Provider settings; must not contain secrets."
    )
    kubeconfig_sealed = models.TextField(
        blank=True, editable=False, help_text="Credentials for the Kubernetes cluster, encrypted."
    )
    slurm_token_sealed = models.TextField(
        blank=True, editable=False, help_text="Token of the slurmrestd user, encrypted."
    )

    # Without `nodes_max`, the pool has a fixed size of `nodes_min` nodes.
    nodes_min = models.PositiveIntegerField(default=1)
    ready_threshold = models.PositiveIntegerField(null=True, blank=True)
    nodes_max = models.PositiveIntegerField(null=True, blank=True)
    nodes_desired = models.PositiveIntegerField(default=0)
    paused = models.BooleanField(default=False)
    expires_at = models.DateTimeField(null=True, blank=True)
    autoscale_cooldown = models.PositiveIntegerField(default=30)
    autoscale_idle_timeout = models.PositiveIntegerField(default=60)
    reconcile_tick = models.PositiveIntegerField(default=15)
    drain_timeout = models.PositiveIntegerField(default=600)
    boot_timeout = models.PositiveIntegerField(default=900)
    boot_failure_limit = models.PositiveIntegerField(
        default=5,
        help_text="Number of consecutive failed boots after which provisioning stops. 0 means unlimited.",
    )

    # Release of unneeded nodes, and limits on how many nodes are disrupted at the same time.
    node_consolidation = models.CharField(
        max_length=20, choices=NodeConsolidation, default=NodeConsolidation.NEVER
    )
    node_consolidation_after = models.PositiveIntegerField(
        default=300,
        help_text="Seconds for which a node and the pool's size must remain unchanged before the node may be "
        "removed.",
    )
    disruption_budgets = models.JSONField(
        default=list,
        blank=True,
        help_text='For example [{"nodes": "10%"}, {"nodes": 0, "schedule": "0 9 * * mon-fri", '
        '"duration": "8h", "zone": "Europe/Berlin"}]. The optional `reasons` lists `empty`, '
        "`underutilized` or both.",
    )

    # State that the autoscaler and the reconciler keep between ticks.
    last_scaled_at = models.DateTimeField(null=True, blank=True, editable=False)
    idle_since = models.DateTimeField(null=True, blank=True, editable=False)
    pressure = models.JSONField(null=True, blank=True, editable=False)
    operational_since = models.DateTimeField(null=True, blank=True, editable=False)
    ticked_at = models.DateTimeField(null=True, blank=True, editable=False)
    retry_at = models.DateTimeField(null=True, blank=True, editable=False)
    cluster_quotas = models.JSONField(
        default=list, editable=False, help_text="Quotas that the pool's own cluster enforces."
    )
    cluster_quotas_obstacle = models.TextField(
        blank=True, editable=False, help_text="Reason why the cluster's quotas cannot be read, or empty."
    )
    provisioning = models.JSONField(null=True, blank=True, editable=False)
    last_error = models.TextField(blank=True, editable=False)
    # Number of consecutive failed launch requests.
    boot_failures = models.PositiveIntegerField(default=0, editable=False)
    boot_error = models.TextField(blank=True, editable=False)
    boot_retry_at = models.DateTimeField(null=True, blank=True, editable=False)
    # Number of provisioning calls by outcome.
    provision_outcomes = models.JSONField(default=dict, blank=True, editable=False)

    # The shape of one node.
    gpus_per_node = models.PositiveIntegerField(default=0)
    gpu_model = models.CharField(max_length=64, blank=True)
    gpu_memory_mib = models.PositiveIntegerField(default=0)
    cpu_milli = models.PositiveIntegerField(default=1000)
    memory_mib = models.PositiveIntegerField(default=1024)
    max_pods = models.PositiveIntegerField(default=110)
    labels = models.JSONField(default=dict, blank=True)
    taints = models.JSONField(default=list, blank=True)
    price_per_gpu_hour = models.DecimalField(max_digits=10, decimal_places=4, null=True, blank=True)

    default_limits = models.JSONField(
        default=dict,
        blank=True,
        help_text="Limits for roles without limits of their own: memory_from_request (default true), "
        "memory_mib, cpu_from_request and cpu.",
    )
    workspace_limit_mib = models.PositiveIntegerField(
        null=True,
        blank=True,
        help_text="Maximum disk space in MiB of a workspace and its pods. Empty for unlimited.",
    )

    # The environment of each node. If empty, nodes use the machine's own Python and packages.
    plugins = models.JSONField(
        default=list, blank=True, help_text="Names and parameters of plugins, in order, without secrets."
    )
    environment = models.JSONField(
        default=dict,
        blank=True,
        help_text="Keys: python, pip, indexes, apt and env. Plugins extend these values.",
    )
    built_environment = models.ForeignKey(
        "pools.Environment", on_delete=models.PROTECT, null=True, related_name="+", editable=False
    )

    image_policy = models.JSONField(
        default=dict,
        blank=True,
        help_text='Policy for container images, for example {"mode": "require", "patterns": '
        '["ghcr.io/org/*"]}. Modes: allow (default), require and forbid.',
    )

    idle_rule = models.JSONField(
        default=dict,
        blank=True,
        help_text='Rule for workloads with idle GPUs, for example {"below": 5, "after": 3600, "action": '
        '"suspend", "grace": 1800, "warmup": 600}. Empty for none.',
    )

    volumes = models.JSONField(
        default=list,
        blank=True,
        help_text='Directories and S3 objects that pods may use, for example [{"name": "datasets", "source": '
        '"/mnt/datasets", "access": "read_only", "nodes": {"storage": "nfs"}, "projects": ["vision"]}].',
    )

    quota_group = models.ForeignKey(
        "pools.QuotaGroup", on_delete=models.PROTECT, null=True, related_name="pools", editable=False
    )

    # Scheduling policies for placement, preemption, consolidation and fair share.
    node_placement = models.CharField(max_length=16, choices=Placement, default=Placement.AUTO)
    device_placement = models.CharField(max_length=16, choices=Placement, default=Placement.AUTO)
    reclaim_min_runtime = models.PositiveIntegerField(default=0)
    preempt_min_runtime = models.PositiveIntegerField(default=0)
    preemption_delay = models.PositiveIntegerField(default=0)
    stale_gang_grace = models.IntegerField(
        default=60, help_text="In seconds. A negative value means that stale gangs are never stopped."
    )
    consolidation_enabled = models.BooleanField(default=True)
    consolidation_max_moves = models.PositiveIntegerField(null=True, blank=True)
    consolidation_max_trials = models.PositiveIntegerField(null=True, blank=True)
    fairshare_mode = models.CharField(max_length=16, choices=FairShare, default=FairShare.POINT_IN_TIME)
    half_life = models.PositiveIntegerField(null=True, blank=True)
    window = models.PositiveIntegerField(null=True, blank=True)
    tumbling_window = models.BooleanField(default=False)
    k = models.FloatField(default=1.0)
    count_all = models.BooleanField(default=False)
    over_quota_weights = models.BooleanField(default=True)
    topology = models.JSONField(default=list, blank=True, help_text="Node label keys, outermost first.")
    reservation_after = models.PositiveIntegerField(
        null=True,
        blank=True,
        default=600,
        help_text="Seconds that a workload is pending before nodes or quota are reserved for it, if its "
        "queue is within its fair share. Empty: never.",
    )
    cpu_load_limit = models.PositiveIntegerField(
        default=1000, help_text="In thousandths of the node's CPU capacity."
    )

    version = models.PositiveIntegerField(default=1, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["name"]
        verbose_name = "node pool"
        constraints = [
            models.CheckConstraint(
                name="pool_fixed_has_a_node",
                condition=Q(nodes_max__isnull=False) | Q(nodes_min__gte=1),
            ),
            models.CheckConstraint(
                name="pool_max_not_below_min",
                condition=Q(nodes_max__isnull=True) | Q(nodes_max__gte=F("nodes_min")),
            ),
            models.CheckConstraint(
                name="pool_max_at_least_one",
                condition=Q(nodes_max__isnull=True) | Q(nodes_max__gte=1),
            ),
            models.CheckConstraint(
                name="pool_ready_threshold_within_bounds",
                condition=Q(ready_threshold__isnull=True)
                | Q(nodes_max__isnull=True, ready_threshold__lte=F("nodes_min"))
                | Q(nodes_max__isnull=False, ready_threshold__lte=F("nodes_max")),
            ),
            models.CheckConstraint(
                name="pool_ready_threshold_at_least_one",
                condition=Q(ready_threshold__isnull=True) | Q(nodes_min=0) | Q(ready_threshold__gte=1),
            ),
            models.CheckConstraint(
                name="pool_nodes_desired_within_bounds",
                condition=Q(nodes_max__isnull=True, nodes_desired__lte=F("nodes_min"))
                | Q(nodes_max__isnull=False, nodes_desired__lte=F("nodes_max")),
            ),
            models.CheckConstraint(name="pool_tick_positive", condition=Q(reconcile_tick__gte=1)),
            models.CheckConstraint(name="pool_max_pods_positive", condition=Q(max_pods__gte=1)),
            models.CheckConstraint(name="pool_cpu_positive", condition=Q(cpu_milli__gte=1)),
            models.CheckConstraint(name="pool_memory_positive", condition=Q(memory_mib__gte=1)),
            models.CheckConstraint(
                name="pool_workspace_limit_positive",
                condition=Q(workspace_limit_mib__isnull=True) | Q(workspace_limit_mib__gte=1),
            ),
            models.CheckConstraint(name="pool_k_not_negative", condition=Q(k__gte=0)),
            models.CheckConstraint(
                name="pool_half_life_positive", condition=Q(half_life__isnull=True) | Q(half_life__gte=1)
            ),
            models.CheckConstraint(
                name="pool_window_positive", condition=Q(window__isnull=True) | Q(window__gte=1)
            ),
            models.CheckConstraint(
                name="pool_price_not_negative",
                condition=Q(price_per_gpu_hour__isnull=True) | Q(price_per_gpu_hour__gte=0),
            ),
            models.CheckConstraint(name="pool_version_positive", condition=Q(version__gte=1)),
            models.CheckConstraint(
                name="pool_known_placement",
                condition=Q(node_placement__in=["binpack", "spread", "fragmentation", "auto"])
                & Q(device_placement__in=["binpack", "spread", "fragmentation", "auto"]),
            ),
            models.CheckConstraint(
                name="pool_known_fairshare_mode",
                condition=Q(fairshare_mode__in=["point_in_time", "time_based"]),
            ),
            models.CheckConstraint(
                name="pool_known_node_consolidation",
                condition=Q(node_consolidation__in=["never", "when_empty", "when_underutilized"]),
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def kind_and_name(self) -> str:
        return f"pool {self.name}"

    @property
    def is_elastic(self) -> bool:
        return self.nodes_max is not None

    @property
    def max_gpus(self) -> int:
        """Number of GPUs that the pool has at its maximum size."""
        return (self.nodes_max or self.nodes_min) * self.gpus_per_node

    @property
    def provisioning_stopped(self) -> bool:
        """Whether too many boots in a row have failed. No nodes are requested until an admin retries."""
        return should_stop_provisioning(self.boot_failures, self.boot_failure_limit)


class PoolPrice(models.Model):
    """Price that a pool had until the time `until`, or null if it had none."""

    pool = models.ForeignKey(NodePool, on_delete=models.CASCADE, related_name="prices")
    until = models.DateTimeField()
    price_per_gpu_hour = models.DecimalField(max_digits=10, decimal_places=4, null=True)

    class Meta:
        ordering = ["pool", "until"]
        constraints = [models.UniqueConstraint(name="pool_price_once", fields=["pool", "until"])]

    def __str__(self) -> str:
        return f"{self.price_per_gpu_hour} until {self.until:%Y-%m-%d %H:%M}"
