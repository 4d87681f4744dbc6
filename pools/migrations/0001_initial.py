import django.core.validators
import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models

from berth.db.schema.initial_migration import InitialMigration


class Migration(InitialMigration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Environment",
            fields=[
                ("digest", models.CharField(max_length=64, primary_key=True, serialize=False)),
                ("image", models.JSONField()),
                ("script", models.TextField()),
                ("phases", models.JSONField()),
                ("created_at", models.DateTimeField()),
            ],
            options={
                "ordering": ["-created_at", "digest"],
            },
        ),
        migrations.CreateModel(
            name="Installation",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("name", models.SlugField(max_length=40)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(condition=models.Q(("pk", 1)), name="installation_is_one")
                ],
            },
        ),
        migrations.CreateModel(
            name="QuotaGroup",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("name", models.SlugField(max_length=40, unique=True)),
                ("version", models.PositiveIntegerField(default=1)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
            ],
            options={
                "ordering": ["name"],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("version__gte", 1)), name="quota_group_version_positive"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="NodePool",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("name", models.SlugField(max_length=40, unique=True)),
                ("provider", models.CharField(default="local", max_length=16)),
                ("runtime", models.CharField(default="local", max_length=16)),
                ("provider_settings", models.JSONField(blank=True, default=dict)),
                ("kubeconfig_sealed", models.TextField(blank=True)),
                ("slurm_token_sealed", models.TextField(blank=True)),
                ("nodes_min", models.PositiveIntegerField(default=1)),
                ("ready_threshold", models.PositiveIntegerField(blank=True, null=True)),
                ("nodes_max", models.PositiveIntegerField(blank=True, null=True)),
                ("nodes_desired", models.PositiveIntegerField(default=0)),
                ("paused", models.BooleanField(default=False)),
                ("expires_at", models.DateTimeField(blank=True, null=True)),
                ("autoscale_cooldown", models.PositiveIntegerField(default=30)),
                ("autoscale_idle_timeout", models.PositiveIntegerField(default=60)),
                ("reconcile_tick", models.PositiveIntegerField(default=15)),
                ("drain_timeout", models.PositiveIntegerField(default=600)),
                ("boot_timeout", models.PositiveIntegerField(default=900)),
                ("boot_failure_limit", models.PositiveIntegerField(default=5)),
                ("node_consolidation", models.CharField(default="never", max_length=20)),
                ("node_consolidation_after", models.PositiveIntegerField(default=300)),
                ("disruption_budgets", models.JSONField(blank=True, default=list)),
                ("last_scaled_at", models.DateTimeField(blank=True, null=True)),
                ("idle_since", models.DateTimeField(blank=True, null=True)),
                ("pressure", models.JSONField(blank=True, null=True)),
                ("operational_since", models.DateTimeField(blank=True, null=True)),
                ("ticked_at", models.DateTimeField(blank=True, null=True)),
                ("retry_at", models.DateTimeField(blank=True, null=True)),
                ("cluster_quotas", models.JSONField(default=list)),
                ("cluster_quotas_obstacle", models.TextField(blank=True)),
                ("provisioning", models.JSONField(blank=True, null=True)),
                ("last_error", models.TextField(blank=True)),
                ("boot_failures", models.PositiveIntegerField(default=0)),
                ("boot_error", models.TextField(blank=True)),
                ("boot_retry_at", models.DateTimeField(blank=True, null=True)),
                ("provision_outcomes", models.JSONField(blank=True, default=dict)),
                ("gpus_per_node", models.PositiveIntegerField(default=0)),
                ("gpu_model", models.CharField(blank=True, max_length=64)),
                ("gpu_memory_mib", models.PositiveIntegerField(default=0)),
                ("cpu_milli", models.PositiveIntegerField(default=1000)),
                ("memory_mib", models.PositiveIntegerField(default=1024)),
                ("max_pods", models.PositiveIntegerField(default=110)),
                (
                    "quota_group",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="pools",
                        to="pools.quotagroup",
                    ),
                ),
                ("default_limits", models.JSONField(blank=True, default=dict)),
                ("workspace_limit_mib", models.PositiveIntegerField(blank=True, null=True)),
                ("labels", models.JSONField(blank=True, default=dict)),
                ("taints", models.JSONField(blank=True, default=list)),
                (
                    "price_per_gpu_hour",
                    models.DecimalField(blank=True, decimal_places=4, max_digits=10, null=True),
                ),
                ("plugins", models.JSONField(blank=True, default=list)),
                ("environment", models.JSONField(blank=True, default=dict)),
                ("image_policy", models.JSONField(blank=True, default=dict)),
                ("volumes", models.JSONField(blank=True, default=list)),
                ("idle_rule", models.JSONField(blank=True, default=dict)),
                ("node_placement", models.CharField(default="auto", max_length=16)),
                ("device_placement", models.CharField(default="auto", max_length=16)),
                ("reclaim_min_runtime", models.PositiveIntegerField(default=0)),
                ("preempt_min_runtime", models.PositiveIntegerField(default=0)),
                ("preemption_delay", models.PositiveIntegerField(default=0)),
                ("stale_gang_grace", models.IntegerField(default=60)),
                ("consolidation_enabled", models.BooleanField(default=True)),
                ("consolidation_max_moves", models.PositiveIntegerField(blank=True, null=True)),
                ("consolidation_max_trials", models.PositiveIntegerField(blank=True, null=True)),
                ("fairshare_mode", models.CharField(default="point_in_time", max_length=16)),
                ("half_life", models.PositiveIntegerField(blank=True, null=True)),
                ("window", models.PositiveIntegerField(blank=True, null=True)),
                ("tumbling_window", models.BooleanField(default=False)),
                ("k", models.FloatField(default=1.0)),
                ("count_all", models.BooleanField(default=False)),
                ("over_quota_weights", models.BooleanField(default=True)),
                ("topology", models.JSONField(blank=True, default=list)),
                ("reservation_after", models.PositiveIntegerField(blank=True, default=600, null=True)),
                ("cpu_load_limit", models.PositiveIntegerField(default=1000)),
                ("version", models.PositiveIntegerField(default=1)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
                (
                    "built_environment",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="pools.environment",
                    ),
                ),
            ],
            options={
                "verbose_name": "node pool",
                "ordering": ["name"],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            ("nodes_max__isnull", False), ("nodes_min__gte", 1), _connector="OR"
                        ),
                        name="pool_fixed_has_a_node",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("nodes_max__isnull", True),
                            ("nodes_max__gte", models.F("nodes_min")),
                            _connector="OR",
                        ),
                        name="pool_max_not_below_min",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("nodes_max__isnull", True), ("nodes_max__gte", 1), _connector="OR"
                        ),
                        name="pool_max_at_least_one",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("ready_threshold__isnull", True),
                            models.Q(
                                ("nodes_max__isnull", True), ("ready_threshold__lte", models.F("nodes_min"))
                            ),
                            models.Q(
                                ("nodes_max__isnull", False), ("ready_threshold__lte", models.F("nodes_max"))
                            ),
                            _connector="OR",
                        ),
                        name="pool_ready_threshold_within_bounds",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("ready_threshold__isnull", True),
                            ("nodes_min", 0),
                            ("ready_threshold__gte", 1),
                            _connector="OR",
                        ),
                        name="pool_ready_threshold_at_least_one",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(
                                ("nodes_desired__lte", models.F("nodes_min")), ("nodes_max__isnull", True)
                            ),
                            models.Q(
                                ("nodes_desired__lte", models.F("nodes_max")), ("nodes_max__isnull", False)
                            ),
                            _connector="OR",
                        ),
                        name="pool_nodes_desired_within_bounds",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("reconcile_tick__gte", 1)), name="pool_tick_positive"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("max_pods__gte", 1)), name="pool_max_pods_positive"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("cpu_milli__gte", 1)), name="pool_cpu_positive"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("memory_mib__gte", 1)), name="pool_memory_positive"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("workspace_limit_mib__isnull", True),
                            ("workspace_limit_mib__gte", 1),
                            _connector="OR",
                        ),
                        name="pool_workspace_limit_positive",
                    ),
                    models.CheckConstraint(condition=models.Q(("k__gte", 0)), name="pool_k_not_negative"),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("half_life__isnull", True), ("half_life__gte", 1), _connector="OR"
                        ),
                        name="pool_half_life_positive",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("window__isnull", True), ("window__gte", 1), _connector="OR"),
                        name="pool_window_positive",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("price_per_gpu_hour__isnull", True),
                            ("price_per_gpu_hour__gte", 0),
                            _connector="OR",
                        ),
                        name="pool_price_not_negative",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("version__gte", 1)), name="pool_version_positive"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("node_placement__in", ["binpack", "spread", "fragmentation", "auto"]),
                            ("device_placement__in", ["binpack", "spread", "fragmentation", "auto"]),
                        ),
                        name="pool_known_placement",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("fairshare_mode__in", ["point_in_time", "time_based"])),
                        name="pool_known_fairshare_mode",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("node_consolidation__in", ["never", "when_empty", "when_underutilized"])
                        ),
                        name="pool_known_node_consolidation",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Node",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("name", models.CharField(max_length=64)),
                ("ordinal", models.PositiveIntegerField()),
                ("state", models.CharField(default="requested", max_length=16)),
                ("instance_id", models.CharField(max_length=300)),
                ("client_token", models.CharField(blank=True, max_length=64)),
                ("address", models.CharField(blank=True, max_length=255)),
                ("gpus", models.PositiveIntegerField(default=0)),
                ("gpu_model", models.CharField(blank=True, max_length=64)),
                ("gpu_memory_mib", models.PositiveIntegerField(default=0)),
                ("cpu_milli", models.PositiveIntegerField()),
                ("memory_mib", models.PositiveIntegerField()),
                ("max_pods", models.PositiveIntegerField(default=110)),
                ("labels", models.JSONField(blank=True, default=dict)),
                ("taints", models.JSONField(blank=True, default=list)),
                ("devices", models.JSONField(blank=True, default=list)),
                ("obstacle", models.CharField(blank=True, max_length=500)),
                ("foreign", models.JSONField(blank=True, default=dict)),
                ("foreign_devices", models.JSONField(blank=True, default=list)),
                ("phases", models.JSONField(blank=True, default=list)),
                ("prepared_at", models.DateTimeField(blank=True, null=True)),
                ("inventory", models.JSONField(blank=True, default=dict)),
                ("upgrade_to", models.CharField(blank=True, default="", max_length=100)),
                ("not_ready_reason", models.TextField(blank=True, default="")),
                ("eviction_reason", models.TextField(blank=True, default="")),
                ("queued", models.BooleanField(default=False)),
                ("since", models.DateTimeField()),
                ("ready_at", models.DateTimeField(blank=True, null=True)),
                ("joined_at", models.DateTimeField(blank=True, null=True)),
                ("interruption_at", models.DateTimeField(blank=True, null=True)),
                ("drain_started_at", models.DateTimeField(blank=True, null=True)),
                ("drained_by_scaling", models.BooleanField(default=False)),
                ("drain_reason", models.CharField(blank=True, max_length=255)),
                ("emptied_at", models.DateTimeField(blank=True, null=True)),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now)),
                ("ended_at", models.DateTimeField(blank=True, null=True)),
                (
                    "environment",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="nodes",
                        to="pools.environment",
                    ),
                ),
                (
                    "pool",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="nodes", to="pools.nodepool"
                    ),
                ),
            ],
            options={
                "ordering": ["pool__name", "ordinal", "pk"],
                "indexes": [models.Index(fields=["pool", "state"], name="node_pool_state")],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("state", "ended"), _negated=True),
                        fields=("name",),
                        name="node_name_unique_while_alive",
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("state", "ended"), _negated=True),
                        fields=("pool", "ordinal"),
                        name="node_ordinal_unique_while_alive",
                    ),
                    models.UniqueConstraint(fields=("pool", "instance_id"), name="node_instance_once"),
                    models.CheckConstraint(
                        condition=models.Q(
                            (
                                "state__in",
                                ["requested", "booting", "ready", "cordoned", "draining", "lost", "ended"],
                            )
                        ),
                        name="node_state_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("instance_id", ""), _negated=True), name="node_instance_named"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("ended_at__isnull", False), ("state", "ended")),
                            models.Q(models.Q(("state", "ended"), _negated=True), ("ended_at__isnull", True)),
                            _connector="OR",
                        ),
                        name="node_ended_has_a_time",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("state", "draining"), _negated=True),
                            ("drain_started_at__isnull", False),
                            _connector="OR",
                        ),
                        name="node_draining_has_a_start",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("max_pods__gte", 1)), name="node_max_pods_positive"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Machine",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("name", models.CharField(max_length=64)),
                ("machine_id", models.CharField(blank=True, default="", max_length=64)),
                ("secret_version", models.PositiveIntegerField(default=1)),
                ("address", models.CharField(max_length=255)),
                ("cpu_milli", models.PositiveIntegerField()),
                ("memory_mib", models.PositiveIntegerField()),
                ("devices", models.JSONField(default=list)),
                ("gpu_model", models.CharField(blank=True, max_length=64)),
                ("inventory", models.JSONField(blank=True, default=dict)),
                ("joined_at", models.DateTimeField()),
                ("last_seen_at", models.DateTimeField()),
                ("removed_at", models.DateTimeField(blank=True, null=True)),
                ("departed_at", models.DateTimeField(blank=True, null=True)),
                (
                    "pool",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="machines",
                        to="pools.nodepool",
                    ),
                ),
            ],
            options={
                "ordering": ["pool__name", "name", "pk"],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("departed_at__isnull", True)),
                        fields=("pool", "name"),
                        name="machine_name_unique_while_there",
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("machine_id", ""), _negated=True),
                        fields=("pool", "machine_id"),
                        name="machine_id_unique_in_pool",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="JoinToken",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("digest", models.CharField(max_length=64, unique=True)),
                ("prefix", models.CharField(default="", max_length=16)),
                ("comment", models.CharField(blank=True, default="", max_length=100)),
                ("issued_by", models.CharField(max_length=150)),
                ("issued_at", models.DateTimeField()),
                ("expires_at", models.DateTimeField()),
                ("max_machines", models.PositiveIntegerField(default=1)),
                ("revoked_at", models.DateTimeField(blank=True, null=True)),
                (
                    "pool",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="join_tokens",
                        to="pools.nodepool",
                    ),
                ),
            ],
            options={
                "ordering": ["-issued_at", "-pk"],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("max_machines__gte", 1)), name="join_token_admits_a_machine"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="JoinTokenUse",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("used_at", models.DateTimeField()),
                (
                    "machine",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="token_uses",
                        to="pools.machine",
                    ),
                ),
                (
                    "token",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="uses",
                        to="pools.jointoken",
                    ),
                ),
            ],
            options={
                "ordering": ["pk"],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("token", "machine"), name="join_token_counts_a_machine_once"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="PoolPrice",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("until", models.DateTimeField()),
                ("price_per_gpu_hour", models.DecimalField(decimal_places=4, max_digits=10, null=True)),
                (
                    "pool",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="prices",
                        to="pools.nodepool",
                    ),
                ),
            ],
            options={
                "ordering": ["pool", "until"],
                "constraints": [models.UniqueConstraint(fields=("pool", "until"), name="pool_price_once")],
            },
        ),
        migrations.CreateModel(
            name="PluginSecret",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("plugin", models.CharField(max_length=40)),
                ("parameter", models.CharField(max_length=40)),
                ("variable", models.CharField(max_length=255)),
                ("sealed", models.TextField()),
                ("version", models.PositiveIntegerField(default=1)),
                ("set_at", models.DateTimeField()),
                (
                    "pool",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="plugin_secrets",
                        to="pools.nodepool",
                    ),
                ),
            ],
            options={
                "ordering": ["pool", "plugin", "parameter"],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("pool", "plugin", "parameter"), name="plugin_secret_once"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("sealed", ""), _negated=True), name="plugin_secret_sealed"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="PoolSecret",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("name", models.CharField(max_length=63)),
                ("kind", models.CharField(default="value", max_length=16)),
                ("registry", models.CharField(blank=True, default="", max_length=255)),
                ("username", models.CharField(blank=True, default="", max_length=255)),
                ("sealed", models.TextField()),
                ("version", models.PositiveIntegerField(default=1)),
                ("created_at", models.DateTimeField()),
                ("created_by", models.CharField(max_length=150)),
                ("updated_at", models.DateTimeField()),
                ("updated_by", models.CharField(max_length=150)),
                (
                    "pool",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="secrets",
                        to="pools.nodepool",
                    ),
                ),
            ],
            options={
                "ordering": ["pool", "name"],
                "constraints": [
                    models.UniqueConstraint(fields=("pool", "name"), name="pool_secret_once"),
                    models.UniqueConstraint(
                        condition=models.Q(("registry", ""), _negated=True),
                        fields=("pool", "registry"),
                        name="pool_registry_once",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("sealed", ""), _negated=True), name="pool_secret_sealed"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="ScalingEvent",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("at", models.DateTimeField()),
                ("kind", models.CharField(max_length=16)),
                ("before", models.PositiveIntegerField(null=True)),
                ("after", models.PositiveIntegerField(null=True)),
                ("reason", models.TextField()),
                ("data", models.JSONField(default=dict)),
                (
                    "node",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="scaling_events",
                        to="pools.node",
                    ),
                ),
                (
                    "pool",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="scaling_events",
                        to="pools.nodepool",
                    ),
                ),
            ],
            options={
                "ordering": ["-at", "-pk"],
                "indexes": [models.Index(fields=["pool", "-at"], name="scaling_pool_at")],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            (
                                "kind__in",
                                [
                                    "autoscale",
                                    "provision",
                                    "surplus",
                                    "adopted",
                                    "joined",
                                    "ready",
                                    "cordon",
                                    "uncordon",
                                    "drain",
                                    "drain_aborted",
                                    "terminate",
                                    "interruption",
                                    "lost",
                                    "orphan",
                                    "boot_failed",
                                    "retried",
                                    "error",
                                    "paused",
                                    "resumed",
                                ],
                            )
                        ),
                        name="scaling_kind_known",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="MachineUse",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("client_token", models.CharField(max_length=64)),
                ("ordinal", models.PositiveIntegerField()),
                ("began_at", models.DateTimeField()),
                ("ended_at", models.DateTimeField(blank=True, null=True)),
                (
                    "machine",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="uses", to="pools.machine"
                    ),
                ),
            ],
            options={
                "ordering": ["pk"],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("ended_at__isnull", True)),
                        fields=("machine",),
                        name="machine_used_once_at_a_time",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="NodeClaim",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("node_name", models.CharField(max_length=253)),
                ("node_uid", models.CharField(max_length=64)),
                ("client_token", models.CharField(max_length=64)),
                ("ordinal", models.PositiveIntegerField()),
                ("began_at", models.DateTimeField()),
                ("ended_at", models.DateTimeField(blank=True, null=True)),
                (
                    "pool",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="node_claims",
                        to="pools.nodepool",
                    ),
                ),
            ],
            options={
                "ordering": ["pool", "pk"],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("ended_at__isnull", True)),
                        fields=("node_uid",),
                        name="node_claimed_once",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="SshHost",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("name", models.CharField(max_length=63)),
                ("address", models.CharField(max_length=253)),
                ("port", models.PositiveIntegerField()),
                ("through", models.CharField(blank=True, default="", max_length=253)),
                ("settings", models.JSONField()),
                ("join_version", models.PositiveIntegerField(default=1)),
                ("applied", models.CharField(blank=True, default="", max_length=64)),
                ("touched_at", models.DateTimeField(null=True)),
                ("removed_at", models.DateTimeField(null=True)),
                ("connected_at", models.DateTimeField(null=True)),
                ("failures", models.PositiveIntegerField(default=0)),
                ("retry_at", models.DateTimeField(null=True)),
                ("problem", models.CharField(blank=True, default="", max_length=16)),
                ("message", models.TextField(blank=True, default="")),
                ("presented_key", models.TextField(blank=True, default="")),
                ("facts", models.JSONField(default=dict)),
                (
                    "machine",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="ssh_hosts",
                        to="pools.machine",
                    ),
                ),
                (
                    "pool",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="ssh_hosts",
                        to="pools.nodepool",
                    ),
                ),
            ],
            options={
                "ordering": ["pool__name", "name", "pk"],
                "constraints": [
                    models.UniqueConstraint(fields=("pool", "name"), name="ssh_host_name_once"),
                    models.UniqueConstraint(
                        fields=("address", "port", "through"), name="ssh_host_listed_once"
                    ),
                ],
            },
        ),
    ]
