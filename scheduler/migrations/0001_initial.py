import django.contrib.postgres.fields
import django.contrib.postgres.indexes
import django.db.models.deletion
import django.db.models.functions.datetime
import scheduler.models
from django.db import migrations, models

from berth.db.schema.initial_migration import InitialMigration


class Migration(InitialMigration):
    initial = True

    dependencies = [
        ("pools", "0001_initial"),
        ("projects", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="NodeUtilization",
            fields=[
                (
                    "node",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="use",
                        serialize=False,
                        to="pools.node",
                    ),
                ),
                ("at", models.DateTimeField()),
                ("devices", models.JSONField()),
            ],
        ),
        migrations.CreateModel(
            name="PodUtilization",
            fields=[
                (
                    "pod",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="use",
                        serialize=False,
                        to="projects.pod",
                    ),
                ),
                ("at", models.DateTimeField()),
                ("cpu_seconds", models.FloatField()),
                ("cpu_milli", models.PositiveIntegerField()),
                ("memory_mib", models.PositiveIntegerField()),
                ("devices", models.JSONField(default=list)),
                ("busy_at", models.DateTimeField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name="Cycle",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("epoch", models.BigIntegerField()),
                ("trigger", models.CharField(max_length=40)),
                ("observe_ms", models.FloatField(default=0)),
                ("decide_ms", models.FloatField(default=0)),
                ("commit_ms", models.FloatField(default=0)),
                ("nodes", models.PositiveIntegerField(default=0)),
                ("workloads", models.PositiveIntegerField(default=0)),
                ("pending", models.PositiveIntegerField(default=0)),
                ("bundles", models.PositiveIntegerField(default=0)),
                ("applied", models.PositiveIntegerField(default=0)),
                ("stale", models.PositiveIntegerField(default=0)),
                ("evictions", models.PositiveIntegerField(default=0)),
                ("trials", models.PositiveIntegerField(default=0)),
                ("engine", models.CharField(blank=True, max_length=64)),
                ("snapshot", models.BinaryField(null=True)),
                ("plan", models.JSONField(null=True)),
                ("notes", models.JSONField(default=list)),
            ],
            options={
                "ordering": ["-id"],
                "indexes": [django.contrib.postgres.indexes.BrinIndex(fields=["at"], name="cycle_time")],
            },
        ),
        migrations.CreateModel(
            name="Allocation",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                (
                    "devices",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.PositiveIntegerField(), default=list, size=None
                    ),
                ),
                ("gpu_milli", models.PositiveIntegerField(default=0)),
                ("cpu_milli", models.PositiveIntegerField(default=0)),
                ("memory_mib", models.PositiveIntegerField(default=0)),
                ("bound_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("released_at", models.DateTimeField(blank=True, null=True)),
                (
                    "node",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="allocations",
                        to="pools.node",
                    ),
                ),
                (
                    "pod",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="allocation",
                        to="projects.pod",
                    ),
                ),
            ],
            options={
                "indexes": [
                    models.Index(
                        condition=models.Q(("released_at__isnull", True)),
                        fields=["node"],
                        name="allocation_active",
                    ),
                    models.Index(fields=["released_at"], name="allocation_released"),
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("gpu_milli__lte", 1000)),
                        name="allocation_at_most_one_device_each",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("devices__len", 0), ("gpu_milli__gt", 0), _connector="OR"),
                        name="allocation_devices_with_gpu",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="DeviceClaim",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("device", models.PositiveIntegerField()),
                ("milli", models.PositiveIntegerField()),
                (
                    "allocation",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="claims",
                        to="scheduler.allocation",
                    ),
                ),
                (
                    "node",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to="pools.node"
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("allocation", "device"), name="claim_once_per_allocation_and_device"
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("milli", 1000)),
                        fields=("node", "device"),
                        name="claim_whole_device_once",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("milli__gte", 1), ("milli__lte", 1000)), name="claim_milli_range"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Eviction",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("cycle", models.BigIntegerField(null=True)),
                ("kind", models.CharField(max_length=12)),
                ("pool_id", models.BigIntegerField()),
                ("pool_name", models.CharField(max_length=63)),
                ("workload_id", models.UUIDField()),
                ("workload_name", models.CharField(max_length=63)),
                ("project_id", models.BigIntegerField()),
                ("project_name", models.CharField(max_length=63)),
                ("department_id", models.BigIntegerField()),
                ("department_name", models.CharField(max_length=63)),
                ("preemptor_id", models.UUIDField(null=True)),
                ("preemptor_name", models.CharField(blank=True, max_length=63)),
                ("preemptor_project_id", models.BigIntegerField(null=True)),
                ("preemptor_project_name", models.CharField(blank=True, max_length=63)),
                ("rule", models.TextField()),
                ("numbers", models.JSONField(default=dict)),
                ("pods", models.JSONField(default=list)),
                ("entire_workload", models.BooleanField(default=True)),
                ("gpu_milli", models.BigIntegerField(default=0)),
                ("lost_gpu_seconds", models.BigIntegerField(default=0)),
            ],
            options={
                "ordering": ["-id"],
                "indexes": [
                    models.Index(fields=["workload_id", "-id"], name="eviction_of_workload"),
                    models.Index(fields=["preemptor_id", "-id"], name="eviction_for_workload"),
                    models.Index(fields=["project_id", "-id"], name="eviction_of_project"),
                    models.Index(fields=["preemptor_project_id", "-id"], name="eviction_for_project"),
                    django.contrib.postgres.indexes.BrinIndex(fields=["at"], name="eviction_time"),
                ],
            },
        ),
        migrations.CreateModel(
            name="QueueStatus",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                (
                    "share",
                    django.contrib.postgres.fields.ArrayField(base_field=models.BigIntegerField(), size=3),
                ),
                (
                    "allocated",
                    django.contrib.postgres.fields.ArrayField(base_field=models.BigIntegerField(), size=3),
                ),
                (
                    "reserved",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(), default=scheduler.models.zero_amounts, size=3
                    ),
                ),
                (
                    "requested",
                    django.contrib.postgres.fields.ArrayField(base_field=models.BigIntegerField(), size=3),
                ),
                ("usage", django.contrib.postgres.fields.ArrayField(base_field=models.FloatField(), size=3)),
                ("at", models.DateTimeField()),
                (
                    "department",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="queue_statuses",
                        to="projects.department",
                    ),
                ),
                (
                    "pool",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="queue_statuses",
                        to="pools.nodepool",
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="queue_statuses",
                        to="projects.project",
                    ),
                ),
            ],
            options={
                "verbose_name_plural": "queue statuses",
                "constraints": [
                    models.UniqueConstraint(
                        fields=("department", "pool"), name="queue_status_once_per_department_and_pool"
                    ),
                    models.UniqueConstraint(
                        fields=("project", "pool"), name="queue_status_once_per_project_and_pool"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Reservation",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("role", models.CharField(max_length=63)),
                ("index", models.PositiveIntegerField()),
                (
                    "devices",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.PositiveIntegerField(), default=list, size=None
                    ),
                ),
                ("gpu_milli", models.PositiveIntegerField(default=0)),
                ("since", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("expires_at", models.DateTimeField(blank=True, null=True)),
                (
                    "node",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="reservations",
                        to="pools.node",
                    ),
                ),
                (
                    "workload",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="reservations",
                        to="projects.workload",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("workload", "role", "index"), name="reservation_once_per_replica"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Usage",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("used", django.contrib.postgres.fields.ArrayField(base_field=models.FloatField(), size=3)),
                ("parent", django.contrib.postgres.fields.ArrayField(base_field=models.FloatField(), size=3)),
                (
                    "held",
                    django.contrib.postgres.fields.ArrayField(base_field=models.BigIntegerField(), size=3),
                ),
                ("rate", django.contrib.postgres.fields.ArrayField(base_field=models.FloatField(), size=3)),
                (
                    "parent_rate",
                    django.contrib.postgres.fields.ArrayField(base_field=models.FloatField(), size=3),
                ),
                ("settled_at", models.DateTimeField()),
                (
                    "department",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="projects.department",
                    ),
                ),
                (
                    "pool",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="pools.nodepool"
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="projects.project",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("department", "pool"), name="usage_once_per_department_and_pool"
                    ),
                    models.UniqueConstraint(
                        fields=("project", "pool"), name="usage_once_per_project_and_pool"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("department__isnull", False), ("project__isnull", True)),
                            models.Q(("department__isnull", True), ("project__isnull", False)),
                            _connector="OR",
                        ),
                        name="usage_has_one_owner",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="UsageHour",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("hour", models.DateTimeField()),
                ("pool_id", models.BigIntegerField()),
                ("pool_name", models.CharField(max_length=63)),
                ("department_id", models.BigIntegerField()),
                ("department_name", models.CharField(max_length=63)),
                ("project_id", models.BigIntegerField()),
                ("project_name", models.CharField(max_length=63)),
                ("user_name", models.CharField(blank=True, max_length=150)),
                ("gpu_milli_seconds", models.BigIntegerField(default=0)),
                ("cpu_milli_seconds", models.BigIntegerField(default=0)),
                ("memory_mib_seconds", models.BigIntegerField(default=0)),
            ],
            options={
                "indexes": [models.Index(fields=["project_id", "hour"], name="usage_hour_of_project")],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("hour", "pool_id", "project_id", "user_name"), name="usage_hour_once"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="UsagePoint",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("at", models.DateTimeField()),
                ("used", django.contrib.postgres.fields.ArrayField(base_field=models.FloatField(), size=3)),
                ("parent", django.contrib.postgres.fields.ArrayField(base_field=models.FloatField(), size=3)),
                (
                    "usage",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="points",
                        to="scheduler.usage",
                    ),
                ),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=("usage", "at"), name="usage_point_once")],
            },
        ),
        migrations.CreateModel(
            name="UtilizationPoint",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("step", models.PositiveSmallIntegerField()),
                ("at", models.DateTimeField()),
                ("seconds", models.FloatField()),
                ("cpu_milli_seconds", models.FloatField()),
                ("memory_mib", models.PositiveIntegerField()),
                ("gpu_milli_seconds", models.FloatField()),
                ("gpu_busy_milli_seconds", models.FloatField()),
                ("gpu_memory_mib", models.PositiveIntegerField(null=True)),
                (
                    "pod",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="use_points",
                        to="projects.pod",
                    ),
                ),
            ],
            options={
                "indexes": [models.Index(fields=["step", "at"], name="use_point_time")],
                "constraints": [models.UniqueConstraint(fields=("pod", "step", "at"), name="use_point_once")],
            },
        ),
    ]
