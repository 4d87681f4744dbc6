import django.contrib.postgres.fields
import django.contrib.postgres.indexes
import django.core.validators
import django.db.models.deletion
import django.db.models.functions.datetime
import projects.models.budgets
import uuid
from django.conf import settings
from django.db import migrations, models

from berth.db.schema.initial_migration import InitialMigration

# The scheduler reads workloads and pods by `changed_in`, see scheduler/loop/observe/mirror.py. An update of other
# columns leaves it as it is.
NOTE_CHANGES = """
CREATE FUNCTION projects_note_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.changed_in = pg_current_xact_id()::text::bigint;
    RETURN NEW;
END $$;
CREATE TRIGGER projects_workload_inserted BEFORE INSERT ON projects_workload
    FOR EACH ROW EXECUTE FUNCTION projects_note_change();
CREATE TRIGGER projects_workload_updated BEFORE UPDATE ON projects_workload
    FOR EACH ROW WHEN (
        (OLD.id, OLD.project_id, OLD.name, OLD.version, OLD.phase, OLD.pending_since, OLD.next_phase, OLD.run,
         OLD.pools, OLD.priority, OLD.preemptible, OLD.submitted_at, OLD.requeued_at, OLD.edits, OLD.started_at,
         OLD.last_checkpoint_at, OLD.stale_since, OLD.backoff_until, OLD.max_runtime, OLD.preemptions,
         OLD.restarts, OLD.start_refusal, OLD.avoided_nodes, OLD.held, OLD.code_wait,
         OLD.changed_in)
        IS DISTINCT FROM
        (NEW.id, NEW.project_id, NEW.name, NEW.version, NEW.phase, NEW.pending_since, NEW.next_phase, NEW.run,
         NEW.pools, NEW.priority, NEW.preemptible, NEW.submitted_at, NEW.requeued_at, NEW.edits, NEW.started_at,
         NEW.last_checkpoint_at, NEW.stale_since, NEW.backoff_until, NEW.max_runtime, NEW.preemptions,
         NEW.restarts, NEW.start_refusal, NEW.avoided_nodes, NEW.held, NEW.code_wait,
         NEW.changed_in)
    ) EXECUTE FUNCTION projects_note_change();

CREATE FUNCTION projects_workload_note_deletion() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- A workload that has ended recently may still be live in the scheduler's last read.
    IF EXISTS (SELECT FROM gone WHERE changed_in = pg_current_xact_id()::text::bigint
                OR ended_at > now() - interval '1 day' OR NOT held
                AND phase IN ('pending', 'reserved', 'starting', 'running', 'stopping')) THEN
        INSERT INTO projects_workloaddeletion (deleted_in) VALUES (pg_current_xact_id()::text::bigint);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER projects_workload_deleted AFTER DELETE ON projects_workload REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION projects_workload_note_deletion();

CREATE TRIGGER projects_pod_inserted BEFORE INSERT ON projects_pod
    FOR EACH ROW EXECUTE FUNCTION projects_note_change();
CREATE TRIGGER projects_pod_updated BEFORE UPDATE ON projects_pod
    FOR EACH ROW WHEN (
        (OLD.id, OLD.workload_id, OLD.role, OLD.index, OLD.run, OLD.node_id, OLD.state, OLD.since,
         OLD.created_at, OLD.started_at, OLD.warnings, OLD.changed_in)
        IS DISTINCT FROM
        (NEW.id, NEW.workload_id, NEW.role, NEW.index, NEW.run, NEW.node_id, NEW.state, NEW.since,
         NEW.created_at, NEW.started_at, NEW.warnings, NEW.changed_in)
    ) EXECUTE FUNCTION projects_note_change();

CREATE FUNCTION projects_pod_note_deletion() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM gone WHERE ended_at IS NULL OR ended_at > now() - interval '1 day') THEN
        INSERT INTO projects_workloaddeletion (deleted_in) VALUES (pg_current_xact_id()::text::bigint);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER projects_pod_deleted AFTER DELETE ON projects_pod REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION projects_pod_note_deletion();
"""
FORGET_CHANGES = """
DROP TRIGGER projects_pod_deleted ON projects_pod;
DROP FUNCTION projects_pod_note_deletion();
DROP TRIGGER projects_pod_updated ON projects_pod;
DROP TRIGGER projects_pod_inserted ON projects_pod;
DROP TRIGGER projects_workload_deleted ON projects_workload;
DROP FUNCTION projects_workload_note_deletion();
DROP TRIGGER projects_workload_updated ON projects_workload;
DROP TRIGGER projects_workload_inserted ON projects_workload;
DROP FUNCTION projects_note_change();
"""
# Indexes of live rows keep an entry for each row that has ended until it is vacuumed, and the scheduler reads
# them in every tick. By default, a table with a million rows is vacuumed after 200,000 changes.
VACUUMED_OFTEN = ("projects_workload", "projects_pod")
# The reasons of pending workloads change often. In a page with free space, PostgreSQL stores the new version of a
# row without new entries in the table's indexes.
LEAVES_ROOM = "projects_workload"


class Migration(InitialMigration):
    initial = True

    dependencies = [
        ("auth", "__first__"),
        ("pools", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="Department",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("name", models.CharField(max_length=63, unique=True)),
                ("title", models.CharField(blank=True, max_length=200)),
                ("rank", models.IntegerField(default=0)),
                ("reclaim_min_runtime", models.PositiveIntegerField(blank=True, null=True)),
                ("preempt_min_runtime", models.PositiveIntegerField(blank=True, null=True)),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                "ordering": ["name"],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("rank__gte", -1000), ("rank__lte", 1000)),
                        name="department_rank_range",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Project",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("name", models.CharField(max_length=63, unique=True)),
                ("title", models.CharField(blank=True, max_length=200)),
                ("rank", models.IntegerField(default=0)),
                ("reclaim_min_runtime", models.PositiveIntegerField(blank=True, null=True)),
                ("preempt_min_runtime", models.PositiveIntegerField(blank=True, null=True)),
                ("idle_rule", models.JSONField(blank=True, default=dict)),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "department",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="projects",
                        to="projects.department",
                    ),
                ),
            ],
            options={
                "ordering": ["department__name", "name"],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("rank__gte", -1000), ("rank__lte", 1000)),
                        name="project_rank_range",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="ProjectSecret",
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
                    "project",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="secrets",
                        to="projects.project",
                    ),
                ),
            ],
            options={
                "ordering": ["project", "name"],
                "constraints": [
                    models.UniqueConstraint(fields=("project", "name"), name="project_secret_once"),
                    models.UniqueConstraint(
                        condition=models.Q(("registry", ""), _negated=True),
                        fields=("project", "registry"),
                        name="project_registry_once",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("sealed", ""), _negated=True), name="project_secret_sealed"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="CodeChunk",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("digest", models.CharField(max_length=64)),
                ("size", models.PositiveIntegerField()),
                ("key", models.UUIDField(default=uuid.uuid4, unique=True)),
                ("used_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "project",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="projects.project",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("project", "digest"), name="code_chunk_once")
                ],
            },
        ),
        migrations.CreateModel(
            name="CodeTree",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("digest", models.CharField(max_length=64)),
                ("size", models.PositiveBigIntegerField()),
                ("file_count", models.PositiveIntegerField()),
                ("files", models.JSONField()),
                (
                    "chunks",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=64), size=None
                    ),
                ),
                (
                    "created_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
                ("used_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "project",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="projects.project",
                    ),
                ),
            ],
            options={
                "indexes": [
                    django.contrib.postgres.indexes.GinIndex(fields=["chunks"], name="code_tree_chunks")
                ],
                "constraints": [models.UniqueConstraint(fields=("project", "digest"), name="code_tree_once")],
            },
        ),
        migrations.CreateModel(
            name="CodeFetch",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, primary_key=True, serialize=False)),
                ("section", models.JSONField()),
                ("state", models.CharField(default="waiting", max_length=8)),
                ("commit", models.CharField(blank=True, max_length=64)),
                ("branch", models.CharField(blank=True, max_length=255)),
                ("secret_version", models.PositiveIntegerField(null=True)),
                ("attempts", models.PositiveIntegerField(default=0)),
                ("retry_at", models.DateTimeField(null=True)),
                ("error", models.TextField(blank=True)),
                (
                    "created_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
                ("ended_at", models.DateTimeField(null=True)),
                (
                    "project",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="projects.project",
                    ),
                ),
                (
                    "requested_by",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "tree",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to="projects.codetree",
                    ),
                ),
            ],
            options={
                "indexes": [
                    models.Index(
                        condition=models.Q(("state", "waiting")),
                        fields=["created_at"],
                        name="code_fetch_waiting",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Budget",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("gpu_hours", models.BigIntegerField()),
                (
                    "warn_at",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.PositiveIntegerField(),
                        default=projects.models.budgets.default_warnings,
                        size=None,
                    ),
                ),
                ("version", models.BigIntegerField()),
                ("updated_at", models.DateTimeField(auto_now=True)),
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
                "ordering": ["department__name", "project__name"],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("department__isnull", False), ("project__isnull", True)),
                            models.Q(("department__isnull", True), ("project__isnull", False)),
                            _connector="OR",
                        ),
                        name="budget_has_one_owner",
                    ),
                    models.UniqueConstraint(fields=("department",), name="budget_once_per_department"),
                    models.UniqueConstraint(fields=("project",), name="budget_once_per_project"),
                    models.CheckConstraint(
                        condition=models.Q(("gpu_hours__gte", 1), ("gpu_hours__lte", 1000000000)),
                        name="budget_hours_range",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="WorkloadArray",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, primary_key=True, serialize=False)),
                ("name", models.CharField(max_length=63)),
                ("spec", models.JSONField()),
                ("priority", models.IntegerField(default=50)),
                ("gpu_milli_min", models.BigIntegerField(default=0)),
                ("task_count", models.PositiveIntegerField()),
                ("max_running", models.PositiveIntegerField(blank=True, null=True)),
                ("state", models.CharField(default="active", max_length=10)),
                (
                    "submitted_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
                ("ended_at", models.DateTimeField(blank=True, null=True)),
                ("unschedulable_at", models.DateTimeField(blank=True, null=True)),
                (
                    "project",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="arrays",
                        to="projects.project",
                    ),
                ),
                (
                    "submitted_by",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "ordering": ["-submitted_at", "-id"],
                "indexes": [
                    models.Index(fields=["-submitted_at", "-id"], name="array_newest"),
                    models.Index(fields=["project", "-submitted_at"], name="array_project_newest"),
                    models.Index(condition=models.Q(("state", "active")), fields=["id"], name="array_active"),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("state", "active")),
                        fields=("project", "name"),
                        name="array_name_once_while_active",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("ended_at__isnull", True), ("state", "active")),
                            models.Q(
                                models.Q(("state", "active"), _negated=True), ("ended_at__isnull", False)
                            ),
                            _connector="OR",
                        ),
                        name="array_ended_has_a_time",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Workload",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, primary_key=True, serialize=False)),
                ("name", models.CharField(max_length=63)),
                ("kind", models.CharField(default="training", max_length=12)),
                ("spec", models.JSONField()),
                ("labels", models.JSONField(default=dict)),
                (
                    "code",
                    models.ForeignKey(
                        blank=True,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="workloads",
                        to="projects.codetree",
                    ),
                ),
                (
                    "code_fetch",
                    models.ForeignKey(
                        blank=True,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="workloads",
                        to="projects.codefetch",
                    ),
                ),
                ("code_wait", models.TextField(blank=True)),
                (
                    "pools",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=63), size=None
                    ),
                ),
                ("priority", models.IntegerField(default=50)),
                ("preemptible", models.BooleanField(default=True)),
                ("array_index", models.PositiveIntegerField(blank=True, null=True)),
                ("attempt", models.PositiveIntegerField(default=1)),
                ("superseded", models.BooleanField(default=False)),
                ("held", models.BooleanField(default=False)),
                (
                    "array",
                    models.ForeignKey(
                        blank=True,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="tasks",
                        to="projects.workloadarray",
                    ),
                ),
                ("phase", models.CharField(default="pending", max_length=10)),
                ("reason", models.CharField(blank=True, max_length=40)),
                ("message", models.TextField(blank=True)),
                ("since", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("pending_since", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("next_phase", models.CharField(blank=True, max_length=10)),
                ("submitted_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("requeued_at", models.DateTimeField(blank=True, null=True)),
                ("started_at", models.DateTimeField(blank=True, null=True)),
                ("first_started_at", models.DateTimeField(blank=True, null=True)),
                ("ended_at", models.DateTimeField(blank=True, null=True)),
                ("last_checkpoint_at", models.DateTimeField(blank=True, null=True)),
                ("stale_since", models.DateTimeField(blank=True, null=True)),
                ("backoff_until", models.DateTimeField(blank=True, null=True)),
                ("start_refusal", models.TextField(blank=True)),
                ("max_runtime", models.PositiveIntegerField(blank=True, null=True)),
                ("deadline", models.DateTimeField(blank=True, null=True)),
                ("idle_timeout", models.PositiveIntegerField(blank=True, null=True)),
                ("run", models.PositiveIntegerField(default=0)),
                ("preemptions", models.PositiveIntegerField(default=0)),
                ("restarts", models.PositiveIntegerField(default=0)),
                ("retries", models.JSONField(blank=True, default=dict)),
                (
                    "peer_failures",
                    models.PositiveSmallIntegerField(
                        default=0,
                        editable=False,
                        help_text="Runs in a row, without progress, that ended because a pod failed after its gang had lost another.",
                    ),
                ),
                (
                    "avoided_nodes",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=64), blank=True, default=list, size=None
                    ),
                ),
                ("exit_code", models.IntegerField(blank=True, null=True)),
                ("rendezvous", models.JSONField(blank=True, null=True)),
                ("gpu_milli_min", models.BigIntegerField(default=0)),
                ("gpu_milli_now", models.BigIntegerField(default=0)),
                ("explanation", models.JSONField(blank=True, null=True)),
                ("explained_at", models.DateTimeField(blank=True, null=True)),
                ("pending_reasons", models.JSONField(blank=True, default=list)),
                ("version", models.PositiveBigIntegerField(default=1)),
                ("edits", models.PositiveIntegerField(default=0)),
                ("changed_in", models.BigIntegerField(default=0)),
                (
                    "pool",
                    models.ForeignKey(
                        blank=True,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="pools.nodepool",
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="workloads",
                        to="projects.project",
                    ),
                ),
                (
                    "submitted_by",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="workloads",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "ordering": ["-submitted_at", "-id"],
                "indexes": [
                    models.Index(fields=["changed_in"], name="workload_changed_in"),
                    models.Index(fields=["phase", "project"], name="workload_phase_project"),
                    models.Index(fields=["-submitted_at", "-id"], name="workload_newest"),
                    models.Index(fields=["project", "-submitted_at"], name="workload_project_newest"),
                    models.Index(
                        condition=models.Q(("first_started_at__isnull", False)),
                        fields=["first_started_at"],
                        name="workload_first_started",
                    ),
                    models.Index(
                        condition=models.Q(("pool__isnull", False)), fields=["pool"], name="workload_pool"
                    ),
                    models.Index(
                        condition=models.Q(("phase", "completed")),
                        fields=["project", "-ended_at"],
                        name="workload_last_completed",
                    ),
                    models.Index(
                        condition=models.Q(("phase", "failed")),
                        fields=["-ended_at"],
                        name="workload_last_failed",
                    ),
                    models.Index(
                        condition=models.Q(
                            ("deadline__isnull", False),
                            models.Q(("phase__in", ["completed", "failed", "cancelled"]), _negated=True),
                        ),
                        fields=["deadline"],
                        name="workload_deadline",
                    ),
                    models.Index(
                        condition=models.Q(
                            ("spec__has_key", "after"),
                            models.Q(("phase__in", ["completed", "failed", "cancelled"]), _negated=True),
                        ),
                        fields=["id"],
                        name="workload_dependents",
                    ),
                    django.contrib.postgres.indexes.GinIndex(
                        fields=["labels"],
                        name="workload_labels",
                        condition=models.Q(("labels", {}), _negated=True),
                    ),
                    models.Index(
                        fields=["code"],
                        name="workload_code",
                        condition=models.Q(("code__isnull", False)),
                    ),
                    models.Index(
                        fields=["code_fetch"],
                        name="workload_code_fetch",
                        condition=models.Q(("code_fetch__isnull", False)),
                    ),
                    models.Index(
                        fields=["array"],
                        name="workload_array",
                        condition=models.Q(("array__isnull", False)),
                    ),
                    models.Index(
                        condition=models.Q(("array__isnull", False), ("superseded", False)),
                        fields=["array", "phase", "held"],
                        name="workload_array_counts",
                    ),
                    models.Index(
                        condition=models.Q(("array__isnull", False), ("first_started_at__isnull", False)),
                        fields=["array", "first_started_at"],
                        name="workload_array_first_start",
                    ),
                    models.Index(
                        condition=models.Q(("held", True)),
                        fields=["array", "array_index"],
                        name="workload_array_held",
                    ),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("array__isnull", False), ("superseded", False)),
                        fields=("array", "array_index"),
                        name="workload_array_task_once",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("array__isnull", True), ("array_index__isnull", True), ("held", False)),
                            models.Q(("array__isnull", False), ("array_index__isnull", False)),
                            _connector="OR",
                        ),
                        name="workload_task_has_an_index",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("held", False), ("phase", "pending"), _connector="OR"),
                        name="workload_held_is_pending",
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(
                            ("phase__in", ["completed", "failed", "cancelled"]), _negated=True
                        ),
                        fields=("project", "name"),
                        name="workload_name_once_while_live",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("priority__gte", 0), ("priority__lte", 1000)),
                        name="workload_priority_range",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("pools__len__gt", 0)), name="workload_names_a_pool"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("ended_at__isnull", False),
                            models.Q(("phase__in", ["completed", "failed", "cancelled"]), _negated=True),
                            _connector="OR",
                        ),
                        name="workload_ended_has_a_time",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("phase", "stopping"), _negated=True),
                            models.Q(("next_phase", ""), _negated=True),
                            _connector="OR",
                        ),
                        name="workload_stopping_knows_where_to",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Pod",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, primary_key=True, serialize=False)),
                ("role", models.CharField(max_length=63)),
                ("index", models.PositiveIntegerField()),
                ("run", models.PositiveIntegerField()),
                ("rank", models.PositiveIntegerField(default=0)),
                ("state", models.CharField(default="starting", max_length=10)),
                ("since", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("started_at", models.DateTimeField(blank=True, null=True)),
                ("ended_at", models.DateTimeField(blank=True, null=True)),
                ("stop_reason", models.CharField(blank=True, max_length=40)),
                ("signalled_at", models.DateTimeField(blank=True, null=True)),
                ("exit_code", models.IntegerField(blank=True, null=True)),
                ("signal", models.IntegerField(blank=True, null=True)),
                ("message", models.TextField(blank=True)),
                ("address", models.CharField(blank=True, max_length=64)),
                ("endpoint", models.JSONField(blank=True, null=True)),
                ("ports", models.JSONField(blank=True, null=True)),
                ("limits", models.JSONField(blank=True, default=dict)),
                ("memory_peak_mib", models.PositiveBigIntegerField(blank=True, null=True)),
                ("warnings", models.PositiveIntegerField(default=0)),
                ("files_until", models.DateTimeField(blank=True, null=True)),
                ("changed_in", models.BigIntegerField(default=0)),
                (
                    "node",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="pods", to="pools.node"
                    ),
                ),
                (
                    "workload",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="pods",
                        to="projects.workload",
                    ),
                ),
            ],
            options={
                "ordering": ["workload", "run", "role", "index"],
                "indexes": [
                    models.Index(fields=["changed_in"], name="pod_changed_in"),
                    models.Index(
                        condition=models.Q(("state__in", ("starting", "running", "stopping"))),
                        fields=["node"],
                        name="pod_on_node_live",
                    ),
                    models.Index(
                        condition=models.Q(("state__in", ("starting", "running", "stopping"))),
                        fields=["state"],
                        name="pod_live",
                    ),
                    models.Index(
                        condition=models.Q(("files_until__isnull", False)),
                        fields=["files_until"],
                        name="pod_with_files",
                    ),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("state__in", ["starting", "running", "stopping"])),
                        fields=("workload", "role", "index"),
                        name="pod_once_while_live",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("ended_at__isnull", False),
                            ("state__in", ["starting", "running", "stopping"]),
                            _connector="OR",
                        ),
                        name="pod_ended_has_a_time",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Service",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("model_name", models.CharField(default="default", max_length=200)),
                ("role", models.CharField(max_length=63)),
                ("initial_engines", models.PositiveIntegerField()),
                ("next_number", models.PositiveIntegerField()),
                ("updating_since", models.DateTimeField(blank=True, null=True)),
                ("syncing_since", models.DateTimeField(blank=True, null=True)),
                ("weight_version", models.CharField(blank=True, max_length=200)),
                ("looked_at", models.DateTimeField(blank=True, null=True)),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("ended_at", models.DateTimeField(blank=True, null=True)),
                (
                    "workload",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="service",
                        to="projects.workload",
                    ),
                ),
            ],
            options={
                "ordering": ["-created_at", "-id"],
                "indexes": [
                    models.Index(
                        condition=models.Q(("ended_at__isnull", True)), fields=["id"], name="service_live"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="ScaleRequest",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, primary_key=True, serialize=False)),
                ("direction", models.CharField(max_length=9)),
                ("mode", models.CharField(max_length=8)),
                ("status", models.CharField(default="PENDING", max_length=15)),
                ("ends_as", models.CharField(blank=True, max_length=9)),
                ("model_name", models.CharField(max_length=200)),
                ("num_replicas", models.PositiveIntegerField(default=0)),
                ("engine_urls", models.JSONField(default=list)),
                ("timeout_secs", models.FloatField()),
                ("policy", models.CharField(blank=True, max_length=12)),
                ("force", models.BooleanField(default=False)),
                ("requested_by", models.CharField(max_length=150)),
                ("by_autoscaler", models.BooleanField(default=False)),
                ("reason", models.TextField(blank=True)),
                ("created_at", models.DateTimeField()),
                ("updated_at", models.DateTimeField()),
                ("ended_at", models.DateTimeField(blank=True, null=True)),
                ("deadline", models.DateTimeField()),
                ("error_message", models.TextField(blank=True)),
                ("failure", models.CharField(blank=True, max_length=11)),
                ("failed_engines", models.JSONField(default=list)),
                ("weight_version", models.CharField(blank=True, max_length=200)),
                (
                    "service",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="requests",
                        to="projects.service",
                    ),
                ),
            ],
            options={
                "ordering": ["-created_at", "-id"],
                "indexes": [
                    models.Index(fields=["service", "-created_at", "-id"], name="scale_request_newest")
                ],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(
                            ("status__in", ("ACTIVE", "PARTIAL", "COMPLETED", "NOOP", "FAILED", "CANCELLED")),
                            _negated=True,
                        ),
                        fields=("service",),
                        name="one_scale_request_at_a_time",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(
                                ("ended_at__isnull", False),
                                (
                                    "status__in",
                                    ("ACTIVE", "PARTIAL", "COMPLETED", "NOOP", "FAILED", "CANCELLED"),
                                ),
                            ),
                            models.Q(
                                ("ended_at__isnull", True),
                                models.Q(
                                    (
                                        "status__in",
                                        ("ACTIVE", "PARTIAL", "COMPLETED", "NOOP", "FAILED", "CANCELLED"),
                                    ),
                                    _negated=True,
                                ),
                            ),
                            _connector="OR",
                        ),
                        name="scale_request_ended_has_a_time",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="ApiToken",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("name", models.CharField(max_length=100)),
                ("prefix", models.CharField(max_length=12)),
                ("digest", models.CharField(max_length=64, unique=True)),
                ("scopes", models.JSONField(default=list)),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("expires_at", models.DateTimeField(blank=True, null=True)),
                ("last_used_at", models.DateTimeField(blank=True, null=True)),
                ("revoked_at", models.DateTimeField(blank=True, null=True)),
                ("session_hash", models.CharField(blank=True, default="", max_length=64)),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="api_tokens",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "ordering": ["-created_at", "-id"],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("revoked_at__isnull", True)),
                        fields=("user", "name"),
                        name="token_name_once_per_person",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Audit",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("actor", models.CharField(max_length=150)),
                ("action", models.CharField(max_length=60)),
                ("object_type", models.CharField(max_length=40)),
                ("object_id", models.CharField(max_length=60)),
                ("object_name", models.CharField(max_length=200)),
                ("department_id", models.BigIntegerField(null=True)),
                ("project_id", models.BigIntegerField(null=True)),
                ("before", models.JSONField(null=True)),
                ("after", models.JSONField(null=True)),
                ("request_id", models.CharField(blank=True, max_length=64)),
                ("change_id", models.BigIntegerField(null=True)),
            ],
            options={
                "ordering": ["-id"],
                "indexes": [
                    models.Index(
                        condition=models.Q(("change_id__isnull", False)),
                        fields=["change_id"],
                        name="audit_of_change",
                    ),
                    models.Index(fields=["object_type", "object_id", "-id"], name="audit_of_object"),
                    models.Index(fields=["project_id", "-id"], name="audit_of_project"),
                    django.contrib.postgres.indexes.BrinIndex(fields=["at"], name="audit_time"),
                ],
            },
        ),
        migrations.CreateModel(
            name="BudgetWarning",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("month", models.DateField()),
                ("percent", models.PositiveIntegerField()),
                ("at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "budget",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="warnings",
                        to="projects.budget",
                    ),
                ),
            ],
            options={
                "ordering": ["-id"],
                "constraints": [
                    models.UniqueConstraint(fields=("budget", "month", "percent"), name="budget_warning_once")
                ],
            },
        ),
        migrations.CreateModel(
            name="Session",
            fields=[
                (
                    "workload",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="session",
                        serialize=False,
                        to="projects.workload",
                    ),
                ),
                ("address", models.CharField(max_length=255)),
                ("executor", models.CharField(default="process", max_length=10)),
                ("slots", models.PositiveIntegerField(default=1)),
                ("max_attempts", models.PositiveIntegerField(default=3)),
                ("idle_timeout", models.PositiveIntegerField()),
                ("python", models.CharField(max_length=20)),
                ("cloudpickle", models.CharField(max_length=20)),
                ("setup", models.BinaryField(default=bytes)),
                ("turn", models.PositiveBigIntegerField(default=0)),
                ("ended_count", models.PositiveBigIntegerField(default=0)),
                ("received_count", models.PositiveBigIntegerField(default=0)),
                ("error", models.TextField(blank=True)),
                ("seen_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("max_attempts__gte", 1), ("slots__gte", 1)),
                        name="session_tries_and_runs_at_least_one",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="SessionWorker",
            fields=[
                (
                    "pod",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="session_worker",
                        serialize=False,
                        to="projects.pod",
                    ),
                ),
                ("node", models.PositiveIntegerField()),
                ("state", models.CharField(default="ready", max_length=10)),
                ("python", models.CharField(max_length=20)),
                ("cloudpickle", models.CharField(max_length=20)),
                ("joined_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("seen_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "session",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="workers",
                        to="projects.session",
                    ),
                ),
            ],
            options={
                "ordering": ["session", "node", "joined_at"],
            },
        ),
        migrations.CreateModel(
            name="Call",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("key", models.UUIDField()),
                ("is_broadcast", models.BooleanField(default=False)),
                ("is_late", models.BooleanField(default=False)),
                ("node", models.PositiveIntegerField(blank=True, null=True)),
                ("state", models.CharField(default="pending", max_length=10)),
                ("outcome", models.CharField(blank=True, max_length=10)),
                ("error", models.JSONField(blank=True, default=dict)),
                ("attempts", models.PositiveIntegerField(default=0)),
                ("delivered", models.BooleanField(default=False)),
                ("payload", models.BinaryField(default=bytes)),
                ("result", models.BinaryField(default=bytes)),
                ("size", models.PositiveBigIntegerField(default=0)),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("ended", models.PositiveBigIntegerField(blank=True, null=True)),
                (
                    "broadcast",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="children",
                        to="projects.call",
                    ),
                ),
                (
                    "worker",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="calls",
                        to="projects.sessionworker",
                    ),
                ),
                (
                    "session",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="calls",
                        to="projects.session",
                    ),
                ),
            ],
            options={
                "ordering": ["id"],
                "indexes": [
                    models.Index(
                        condition=models.Q(("state", "ended"), _negated=True),
                        fields=["session", "state", "id"],
                        name="call_not_ended",
                    ),
                    models.Index(
                        condition=models.Q(("state", "ended")), fields=["session", "ended"], name="call_ended"
                    ),
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("session", "key"), name="call_once"),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(
                                ("ended__isnull", False),
                                ("state", "ended"),
                                models.Q(("outcome", ""), _negated=True),
                            ),
                            models.Q(
                                models.Q(("state", "ended"), _negated=True),
                                ("ended__isnull", True),
                                ("outcome", ""),
                            ),
                            _connector="OR",
                        ),
                        name="call_ended_has_an_outcome",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Event",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("kind", models.CharField(max_length=40)),
                ("project_id", models.BigIntegerField(null=True)),
                ("workload_id", models.UUIDField(null=True)),
                ("subject", models.CharField(max_length=200)),
                ("message", models.TextField()),
                ("data", models.JSONField(default=dict)),
                ("actor", models.CharField(max_length=150)),
            ],
            options={
                "ordering": ["-id"],
                "indexes": [
                    models.Index(fields=["workload_id", "id"], name="event_of_workload"),
                    models.Index(fields=["project_id", "-id"], name="event_of_project"),
                    django.contrib.postgres.indexes.BrinIndex(fields=["at"], name="event_time"),
                ],
            },
        ),
        migrations.CreateModel(
            name="Identity",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("issuer", models.CharField(max_length=255)),
                ("subject", models.CharField(max_length=255)),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="identities",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "verbose_name_plural": "identities",
                "ordering": ["id"],
                "constraints": [models.UniqueConstraint(fields=("issuer", "subject"), name="identity_once")],
            },
        ),
        migrations.CreateModel(
            name="Leftover",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("kind", models.CharField(max_length=10)),
                ("name", models.CharField(max_length=64)),
                ("left_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("handed_at", models.DateTimeField(null=True)),
                (
                    "pool",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="pools.nodepool"
                    ),
                ),
            ],
            options={
                "ordering": ["id"],
                "constraints": [
                    models.UniqueConstraint(fields=("pool", "kind", "name"), name="leftover_once")
                ],
            },
        ),
        migrations.CreateModel(
            name="Membership",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("role", models.CharField(max_length=20)),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "department",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="members",
                        to="projects.department",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="memberships",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="members",
                        to="projects.project",
                    ),
                ),
            ],
            options={
                "ordering": ["user__username", "id"],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(
                                ("department__isnull", True),
                                ("project__isnull", True),
                                ("role", "platform_admin"),
                            ),
                            models.Q(
                                ("department__isnull", False),
                                ("project__isnull", True),
                                ("role", "department_admin"),
                            ),
                            models.Q(
                                ("department__isnull", True),
                                ("project__isnull", False),
                                ("role", "project_admin"),
                            ),
                            models.Q(
                                ("department__isnull", True),
                                ("project__isnull", False),
                                ("role__in", ["member", "viewer"]),
                            ),
                            models.Q(
                                ("department__isnull", False), ("project__isnull", True), ("role", "viewer")
                            ),
                            _connector="OR",
                        ),
                        name="membership_role_fits_its_scope",
                    ),
                    models.UniqueConstraint(
                        fields=("user", "department", "project"),
                        name="membership_once_per_scope",
                        nulls_distinct=False,
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Quota",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("gpu_milli", models.BigIntegerField(blank=True, default=0, null=True)),
                ("cpu_milli", models.BigIntegerField(blank=True, null=True)),
                ("memory_mib", models.BigIntegerField(blank=True, null=True)),
                ("limit_gpu_milli", models.BigIntegerField(blank=True, null=True)),
                ("limit_cpu_milli", models.BigIntegerField(blank=True, null=True)),
                ("limit_memory_mib", models.BigIntegerField(blank=True, null=True)),
                ("weight_gpu", models.FloatField(default=1.0)),
                ("weight_cpu", models.FloatField(default=1.0)),
                ("weight_memory", models.FloatField(default=1.0)),
                ("over_quota", models.BooleanField(default=True)),
                ("rank", models.IntegerField(blank=True, null=True)),
                ("version", models.PositiveBigIntegerField(default=1)),
                ("updated_at", models.DateTimeField(auto_now=True)),
                (
                    "department",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="quotas",
                        to="projects.department",
                    ),
                ),
                (
                    "group",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="quotas",
                        to="pools.quotagroup",
                    ),
                ),
                (
                    "pool",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="quotas",
                        to="pools.nodepool",
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="quotas",
                        to="projects.project",
                    ),
                ),
            ],
            options={
                "ordering": ["pool__name", "group__name", "department__name", "project__name"],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("group__isnull", True), ("pool__isnull", False)),
                            models.Q(("group__isnull", False), ("pool__isnull", True)),
                            _connector="OR",
                        ),
                        name="quota_has_a_pool_or_a_group",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("department__isnull", False), ("project__isnull", True)),
                            models.Q(("department__isnull", True), ("project__isnull", False)),
                            _connector="OR",
                        ),
                        name="quota_has_one_owner",
                    ),
                    models.UniqueConstraint(
                        fields=("department", "pool"), name="quota_once_per_department_and_pool"
                    ),
                    models.UniqueConstraint(
                        fields=("project", "pool"), name="quota_once_per_project_and_pool"
                    ),
                    models.UniqueConstraint(
                        fields=("department", "group"), name="quota_once_per_department_and_group"
                    ),
                    models.UniqueConstraint(
                        fields=("project", "group"), name="quota_once_per_project_and_group"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("gpu_milli__gte", 0), ("gpu_milli__lte", 1000000000000)),
                        name="quota_gpu_milli_range",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("cpu_milli__gte", 0), ("cpu_milli__lte", 1000000000000)),
                        name="quota_cpu_milli_range",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("memory_mib__gte", 0), ("memory_mib__lte", 1000000000000)),
                        name="quota_memory_mib_range",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("limit_gpu_milli__gte", 0), ("limit_gpu_milli__lte", 1000000000000)
                        ),
                        name="quota_limit_gpu_milli_range",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("limit_cpu_milli__gte", 0), ("limit_cpu_milli__lte", 1000000000000)
                        ),
                        name="quota_limit_cpu_milli_range",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("limit_memory_mib__gte", 0), ("limit_memory_mib__lte", 1000000000000)
                        ),
                        name="quota_limit_memory_mib_range",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("weight_gpu__gte", 0),
                            ("weight_gpu__lte", 1000000.0),
                            ("weight_cpu__gte", 0),
                            ("weight_cpu__lte", 1000000.0),
                            ("weight_memory__gte", 0),
                            ("weight_memory__lte", 1000000.0),
                        ),
                        name="quota_weights_range",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("rank__gte", -1000), ("rank__lte", 1000)), name="quota_rank_range"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("limit_gpu_milli__isnull", True),
                            ("gpu_milli__lte", models.F("limit_gpu_milli")),
                            ("gpu_milli__isnull", True),
                            _connector="OR",
                        ),
                        name="quota_gpu_within_limit",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="QuotaChange",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("actor", models.CharField(max_length=150)),
                ("comment", models.CharField(blank=True, max_length=500)),
                ("reverts", models.BigIntegerField(null=True)),
                ("written", models.JSONField()),
            ],
            options={
                "ordering": ["-id"],
                "indexes": [
                    models.Index(
                        condition=models.Q(("reverts__isnull", False)),
                        fields=["reverts"],
                        name="change_reverted_by",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="QuotaExpiry",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("due_at", models.DateTimeField()),
                ("done_at", models.DateTimeField(null=True)),
                ("outcome", models.TextField(blank=True)),
                (
                    "change",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="expiry",
                        to="projects.quotachange",
                    ),
                ),
            ],
            options={
                "ordering": ["due_at", "id"],
                "indexes": [
                    models.Index(
                        condition=models.Q(("done_at", None)), fields=["due_at"], name="quota_expiry_due"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="RemovedQuota",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("version", models.PositiveBigIntegerField()),
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
                    "group",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="pools.quotagroup",
                    ),
                ),
                (
                    "pool",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="pools.nodepool",
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
                        fields=("department", "project", "pool", "group"),
                        name="removed_quota_once",
                        nulls_distinct=False,
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("department__isnull", False), ("project__isnull", True)),
                            models.Q(("department__isnull", True), ("project__isnull", False)),
                            _connector="OR",
                        ),
                        name="removed_quota_has_one_owner",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="SavedView",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("name", models.CharField(max_length=60)),
                ("query", models.TextField()),
                ("saved_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "ordering": ["name"],
                "constraints": [
                    models.UniqueConstraint(fields=("user", "name"), name="view_name_once_per_person")
                ],
            },
        ),
        migrations.CreateModel(
            name="ScaleStep",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("at", models.DateTimeField()),
                ("status", models.CharField(max_length=15)),
                ("message", models.TextField(blank=True)),
                (
                    "request",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="steps",
                        to="projects.scalerequest",
                    ),
                ),
            ],
            options={
                "ordering": ["id"],
            },
        ),
        migrations.CreateModel(
            name="Scaling",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("action", models.CharField(max_length=9)),
                ("status", models.CharField(max_length=15)),
                ("triggered_at", models.DateTimeField()),
                ("completed_at", models.DateTimeField(blank=True, null=True)),
                ("from_engines", models.PositiveIntegerField()),
                ("to_engines", models.PositiveIntegerField()),
                ("delta", models.PositiveIntegerField()),
                ("reason", models.TextField()),
                ("triggered_conditions", models.JSONField(default=list)),
                ("metrics_snapshot", models.JSONField(default=dict)),
                ("error_message", models.TextField(blank=True)),
                (
                    "request",
                    models.OneToOneField(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="scaling",
                        to="projects.scalerequest",
                    ),
                ),
                (
                    "service",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="scalings",
                        to="projects.service",
                    ),
                ),
            ],
            options={
                "ordering": ["-id"],
                "indexes": [
                    models.Index(fields=["service", "-id"], name="scaling_newest"),
                    models.Index(
                        condition=models.Q(("completed_at__isnull", True)),
                        fields=["service"],
                        name="scaling_open",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="MetricsPoint",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("at", models.DateTimeField()),
                ("engines", models.PositiveIntegerField()),
                ("reporting", models.PositiveIntegerField()),
                ("values", models.JSONField(default=dict)),
                ("by_engine", models.JSONField(default=dict)),
                (
                    "service",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="points",
                        to="projects.service",
                    ),
                ),
            ],
            options={
                "ordering": ["service", "at"],
                "constraints": [models.UniqueConstraint(fields=("service", "at"), name="metrics_point_once")],
            },
        ),
        migrations.CreateModel(
            name="Autoscaler",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("enabled", models.BooleanField(default=False)),
                ("settings", models.JSONField(default=dict)),
                ("memory", models.JSONField(default=dict)),
                ("last_decision", models.JSONField(blank=True, null=True)),
                ("last_scale_at", models.DateTimeField(blank=True, null=True)),
                ("last_scale_action", models.CharField(blank=True, max_length=9)),
                ("scraped_at", models.DateTimeField(blank=True, null=True)),
                ("evaluated_at", models.DateTimeField(blank=True, null=True)),
                ("last_error", models.TextField(blank=True)),
                (
                    "service",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="autoscaler",
                        to="projects.service",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="WorkloadDeletion",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("deleted_in", models.BigIntegerField()),
                ("deleted_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
        ),
        migrations.CreateModel(
            name="WorkloadRole",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("position", models.PositiveIntegerField()),
                ("name", models.CharField(max_length=63)),
                ("min", models.PositiveIntegerField()),
                ("max", models.PositiveIntegerField()),
                ("gpu_milli", models.PositiveIntegerField(default=0)),
                ("gpu_devices", models.PositiveIntegerField(default=0)),
                ("gpu_memory_mib", models.PositiveIntegerField(default=0)),
                ("cpu_milli", models.PositiveIntegerField(default=0)),
                ("memory_mib", models.PositiveIntegerField(default=0)),
                (
                    "workload",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="roles",
                        to="projects.workload",
                    ),
                ),
            ],
            options={
                "ordering": ["workload", "position"],
                "constraints": [
                    models.UniqueConstraint(fields=("workload", "position"), name="role_position_once"),
                    models.CheckConstraint(
                        condition=models.Q(("min__lte", models.F("max"))),
                        name="role_min_within_max",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("gpu_milli__lte", 1000)),
                        name="role_shares_at_most_one_device_each",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("gpu_milli", 0), ("gpu_memory_mib", 0), _connector="OR"),
                        name="role_asks_by_share_or_by_memory",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="OpenChannel",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("actor", models.CharField(max_length=150)),
                ("request_id", models.CharField(blank=True, max_length=64)),
                ("workload", models.UUIDField()),
                ("workload_name", models.CharField(max_length=200)),
                ("noun", models.CharField(max_length=20)),
                ("details", models.JSONField()),
                ("opened_at", models.DateTimeField()),
                ("seen_at", models.DateTimeField()),
                (
                    "project",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to="projects.project",
                    ),
                ),
            ],
            options={
                "ordering": ["id"],
            },
        ),
        migrations.CreateModel(
            name="PortLink",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("digest", models.CharField(max_length=64, unique=True)),
                ("port", models.CharField(max_length=15)),
                ("session_hash", models.CharField(max_length=64)),
                ("session_key", models.CharField(blank=True, default="", max_length=40)),
                ("issued_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("expires_at", models.DateTimeField()),
                ("used_at", models.DateTimeField(blank=True, null=True)),
                ("cookie_digest", models.CharField(blank=True, max_length=64, null=True, unique=True)),
                ("session_until", models.DateTimeField()),
                ("seen_at", models.DateTimeField(blank=True, null=True)),
                (
                    "token",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="projects.apitoken",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="port_links",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "workload",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="port_links",
                        to="projects.workload",
                    ),
                ),
            ],
            options={
                "ordering": ["-issued_at", "-id"],
                "indexes": [
                    models.Index(
                        condition=models.Q(("seen_at__isnull", False)),
                        fields=["workload", "-seen_at"],
                        name="port_session_seen",
                    )
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("cookie_digest__isnull", True), ("used_at__isnull", True)),
                            models.Q(("cookie_digest__isnull", False), ("used_at__isnull", False)),
                            _connector="OR",
                        ),
                        name="port_link_is_used_for_a_session",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="InferenceEngine",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, primary_key=True, serialize=False)),
                ("number", models.PositiveIntegerField()),
                ("origin", models.CharField(max_length=8)),
                ("state", models.CharField(max_length=15)),
                ("since", models.DateTimeField()),
                ("index", models.PositiveIntegerField(default=0)),
                ("pod_id", models.UUIDField(blank=True, null=True)),
                ("url", models.CharField(blank=True, max_length=500)),
                ("router_url", models.CharField(blank=True, max_length=500)),
                ("is_routed", models.BooleanField(default=False)),
                ("isolated_at", models.DateTimeField(blank=True, null=True)),
                ("is_healthy", models.BooleanField(default=False)),
                ("failures", models.PositiveIntegerField(default=0)),
                ("connection_failures", models.PositiveIntegerField(default=0)),
                ("looked_at", models.DateTimeField(blank=True, null=True)),
                ("running", models.PositiveIntegerField(blank=True, null=True)),
                ("weight_version", models.CharField(blank=True, max_length=200)),
                ("sync", models.CharField(blank=True, max_length=7)),
                ("sync_message", models.TextField(blank=True)),
                ("sync_tried_at", models.DateTimeField(blank=True, null=True)),
                ("router_message", models.TextField(blank=True)),
                ("ends_as", models.CharField(blank=True, max_length=7)),
                ("failure", models.CharField(blank=True, max_length=11)),
                ("message", models.TextField(blank=True)),
                ("created_at", models.DateTimeField()),
                ("ended_at", models.DateTimeField(blank=True, null=True)),
                (
                    "added_by",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="added",
                        to="projects.scalerequest",
                    ),
                ),
                (
                    "removed_by",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="removed",
                        to="projects.scalerequest",
                    ),
                ),
                (
                    "service",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="engines",
                        to="projects.service",
                    ),
                ),
                (
                    "workload",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="engines",
                        to="projects.workload",
                    ),
                ),
            ],
            options={
                "ordering": ["service", "number"],
                "indexes": [
                    models.Index(
                        condition=models.Q(
                            ("ended_at__isnull", True),
                            models.Q(("router_url", ""), _negated=True),
                            _connector="OR",
                        ),
                        fields=["service"],
                        name="engine_live",
                    )
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("service", "number"), name="engine_number_once"),
                    models.UniqueConstraint(
                        condition=models.Q(("ended_at__isnull", True), ("origin", "external")),
                        fields=("service", "url"),
                        name="engine_url_once_while_live",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("ended_at__isnull", False), ("state__in", ("REMOVED", "FAILED"))),
                            models.Q(
                                ("ended_at__isnull", True),
                                models.Q(("state__in", ("REMOVED", "FAILED")), _negated=True),
                            ),
                            _connector="OR",
                        ),
                        name="engine_ended_has_a_time",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Subscription",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                (
                    "events",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=20), size=None
                    ),
                ),
                ("pending_minutes", models.PositiveIntegerField(default=60)),
                ("to", models.TextField()),
                ("channel", models.CharField(max_length=7)),
                ("created_by", models.CharField(max_length=150)),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
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
                    "project",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="projects.project",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "ordering": ["id"],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("user", "project", "department", "to"),
                        name="subscription_once_per_place_and_address",
                        nulls_distinct=False,
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("project__isnull", True), ("user__isnull", True)),
                            models.Q(("department__isnull", True), ("user__isnull", True)),
                            models.Q(("department__isnull", True), ("project__isnull", True)),
                            _connector="OR",
                        ),
                        name="subscription_has_one_place_at_most",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Delivery",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("kind", models.CharField(max_length=20)),
                ("workload_id", models.UUIDField(null=True)),
                ("project_id", models.BigIntegerField(null=True)),
                ("to", models.TextField()),
                ("channel", models.CharField(max_length=7)),
                ("content", models.JSONField()),
                ("state", models.CharField(default="pending", max_length=9)),
                ("attempts", models.PositiveIntegerField(default=0)),
                ("next_attempt_at", models.DateTimeField()),
                ("last_error", models.TextField(blank=True)),
                ("ended_at", models.DateTimeField(null=True)),
                ("subscription_id", models.BigIntegerField(null=True)),
            ],
            options={
                "verbose_name_plural": "deliveries",
                "ordering": ["-id"],
                "indexes": [
                    models.Index(fields=["workload_id", "-id"], name="delivery_of_workload"),
                    models.Index(fields=["subscription_id", "-id"], name="delivery_of_subscription"),
                    models.Index(
                        condition=models.Q(("state", "pending")),
                        fields=["next_attempt_at"],
                        name="delivery_due",
                    ),
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("ended_at__isnull", True), ("state", "pending")),
                            models.Q(
                                models.Q(("state", "pending"), _negated=True), ("ended_at__isnull", False)
                            ),
                            _connector="OR",
                        ),
                        name="delivery_ended_has_a_time",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Template",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("name", models.CharField(max_length=63)),
                ("description", models.CharField(blank=True, max_length=200)),
                ("text", models.TextField()),
                ("changed_by", models.CharField(max_length=150)),
                ("changed_at", models.DateTimeField(auto_now=True)),
                ("version", models.BigIntegerField()),
                (
                    "made_by",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="templates",
                        to="projects.project",
                    ),
                ),
            ],
            options={
                "ordering": ["project__name", "name"],
                "constraints": [
                    models.UniqueConstraint(fields=("project", "name"), name="template_once_per_project")
                ],
            },
        ),
        migrations.CreateModel(
            name="RunImage",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("run", models.PositiveIntegerField()),
                ("image", models.CharField(max_length=512)),
                ("digest", models.CharField(blank=True, max_length=71)),
                ("resolved_at", models.DateTimeField(blank=True, null=True)),
                ("attempts", models.PositiveIntegerField(default=0)),
                ("retry_at", models.DateTimeField(blank=True, null=True)),
                ("error", models.TextField(blank=True)),
                (
                    "workload",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="images",
                        to="projects.workload",
                    ),
                ),
            ],
            options={
                "ordering": ["workload", "run"],
                "constraints": [
                    models.UniqueConstraint(fields=("workload", "run"), name="image_once_per_run"),
                    models.CheckConstraint(
                        condition=models.Q(("digest", ""), ("resolved_at__isnull", False), _connector="OR"),
                        name="image_resolved_has_a_time",
                    ),
                ],
            },
        ),
        migrations.RunSQL(NOTE_CHANGES, FORGET_CHANGES),
        migrations.RunSQL(
            [
                f"ALTER TABLE {table} SET (autovacuum_vacuum_threshold = 1000,"
                " autovacuum_vacuum_scale_factor = 0.01, autovacuum_analyze_scale_factor = 0.02)"
                for table in VACUUMED_OFTEN
            ],
            [
                f"ALTER TABLE {table} RESET (autovacuum_vacuum_threshold,"
                " autovacuum_vacuum_scale_factor, autovacuum_analyze_scale_factor)"
                for table in VACUUMED_OFTEN
            ],
        ),
        migrations.RunSQL(
            f"ALTER TABLE {LEAVES_ROOM} SET (fillfactor = 70)",
            f"ALTER TABLE {LEAVES_ROOM} RESET (fillfactor)",
        ),
        migrations.CreateModel(
            name="Schedule",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("name", models.CharField(max_length=63)),
                ("cron", models.CharField(max_length=120)),
                ("time_zone", models.CharField(default="UTC", max_length=64)),
                ("overlap", models.CharField(default="skip", max_length=10)),
                ("text", models.TextField(blank=True)),
                ("template", models.CharField(blank=True, max_length=63)),
                ("next_at", models.DateTimeField(blank=True, null=True)),
                ("paused_at", models.DateTimeField(blank=True, null=True)),
                ("pause_message", models.TextField(blank=True)),
                ("retry_at", models.DateTimeField(blank=True, null=True)),
                ("changed_by", models.CharField(max_length=150)),
                ("changed_at", models.DateTimeField(auto_now=True)),
                ("version", models.BigIntegerField()),
                (
                    "owner",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="schedules",
                        to="projects.project",
                    ),
                ),
            ],
            options={
                "ordering": ["project__name", "name"],
            },
        ),
        migrations.CreateModel(
            name="ScheduleRun",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("due_at", models.DateTimeField()),
                ("outcome", models.CharField(max_length=10)),
                ("message", models.TextField(blank=True)),
                ("started_by", models.CharField(blank=True, max_length=150)),
                ("decided_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "array",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="schedule_runs",
                        to="projects.workloadarray",
                    ),
                ),
                (
                    "schedule",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="runs",
                        to="projects.schedule",
                    ),
                ),
                (
                    "workload",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="schedule_runs",
                        to="projects.workload",
                    ),
                ),
            ],
            options={
                "ordering": ["-due_at", "-id"],
            },
        ),
        migrations.AddIndex(
            model_name="schedule",
            index=models.Index(
                condition=models.Q(("next_at__isnull", False)), fields=["next_at"], name="schedule_due"
            ),
        ),
        migrations.AddConstraint(
            model_name="schedule",
            constraint=models.UniqueConstraint(fields=("project", "name"), name="schedule_once_per_project"),
        ),
        migrations.CreateModel(
            name="Metric",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("name", models.CharField(max_length=64)),
                (
                    "steps",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(), default=list, size=None
                    ),
                ),
                (
                    "values",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.FloatField(), default=list, size=None
                    ),
                ),
                ("stride", models.BigIntegerField(default=1)),
                ("last_step", models.BigIntegerField(null=True)),
                ("last_value", models.FloatField(null=True)),
                ("min_step", models.BigIntegerField(null=True)),
                ("min_value", models.FloatField(null=True)),
                ("max_step", models.BigIntegerField(null=True)),
                ("max_value", models.FloatField(null=True)),
                ("not_finite", models.PositiveIntegerField(default=0)),
                ("not_finite_step", models.BigIntegerField(null=True)),
                ("reported_at", models.DateTimeField()),
                (
                    "workload",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="metrics",
                        to="projects.workload",
                    ),
                ),
            ],
            options={
                "ordering": ["workload", "name"],
                "constraints": [models.UniqueConstraint(fields=("workload", "name"), name="metric_once")],
            },
        ),
        migrations.CreateModel(
            name="PodOutputs",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "paths",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.TextField(), default=list, size=None
                    ),
                ),
                ("volume", models.CharField(blank=True, max_length=63)),
                ("source", models.CharField(blank=True, max_length=32)),
                ("state", models.CharField(default="waiting", max_length=8)),
                ("message", models.TextField(blank=True)),
                ("skipped", models.JSONField(default=dict)),
                ("file_count", models.PositiveIntegerField(default=0)),
                ("size", models.PositiveBigIntegerField(default=0)),
                ("deleted_count", models.PositiveIntegerField(default=0)),
                ("progress", models.JSONField(default=dict)),
                ("stored_at", models.DateTimeField(null=True)),
                ("attempts", models.PositiveIntegerField(default=0)),
                ("retry_at", models.DateTimeField(null=True)),
                (
                    "pod",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="outputs",
                        to="projects.pod",
                    ),
                ),
                (
                    "tree",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to="projects.codetree",
                    ),
                ),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=("pod", "volume"), name="outputs_once")],
                "indexes": [
                    models.Index(
                        condition=models.Q(("state", "waiting")), fields=["pod"], name="outputs_waiting"
                    ),
                    models.Index(
                        condition=models.Q(("state", "waiting"), models.Q(("source", ""), _negated=True)),
                        fields=["source"],
                        name="changes_waiting",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="MetricsReader",
            fields=[
                (
                    "pod",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="+",
                        serialize=False,
                        to="projects.pod",
                    ),
                ),
                ("offset", models.BigIntegerField(default=0)),
                ("is_complete", models.BooleanField(default=False)),
            ],
        ),
        migrations.AddConstraint(
            model_name="schedule",
            constraint=models.CheckConstraint(
                condition=models.Q(("text", ""), ("template", ""), _connector="XOR"),
                name="schedule_has_one_source",
            ),
        ),
        migrations.AddConstraint(
            model_name="schedule",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("next_at__isnull", True), ("paused_at__isnull", False)),
                    models.Q(("next_at__isnull", False), ("paused_at__isnull", True)),
                    _connector="OR",
                ),
                name="schedule_is_paused_or_due",
            ),
        ),
        migrations.AddIndex(
            model_name="schedulerun",
            index=models.Index(
                condition=models.Q(("outcome", "queued")), fields=["schedule"], name="schedule_run_queued"
            ),
        ),
        migrations.AddConstraint(
            model_name="schedulerun",
            constraint=models.UniqueConstraint(fields=("schedule", "due_at"), name="schedule_run_once"),
        ),
        migrations.CreateModel(
            name="SecretValue",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("kind", models.CharField(max_length=8)),
                ("secret", models.BigIntegerField()),
                ("version", models.PositiveIntegerField()),
                ("sealed", models.TextField()),
                ("used_at", models.DateTimeField()),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("kind", "secret", "version"), name="secret_value_once"),
                    models.CheckConstraint(
                        condition=models.Q(("sealed", ""), _negated=True), name="secret_value_sealed"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="SecretUse",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ("run", models.PositiveIntegerField()),
                ("owner_kind", models.CharField(max_length=8)),
                ("owner", models.CharField(max_length=150)),
                ("name", models.CharField(max_length=81)),
                ("version", models.PositiveIntegerField()),
                ("at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "value",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="uses",
                        to="projects.secretvalue",
                    ),
                ),
                (
                    "workload",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="secret_uses",
                        to="projects.workload",
                    ),
                ),
            ],
            options={
                "ordering": ["-id"],
                "indexes": [
                    models.Index(fields=["owner_kind", "owner", "name", "-id"], name="uses_of_a_secret")
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("workload", "run", "value"), name="secret_use_once")
                ],
            },
        ),
        migrations.CreateModel(
            name="IdleWarning",
            fields=[
                (
                    "workload",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="idle_warning",
                        serialize=False,
                        to="projects.workload",
                    ),
                ),
                ("run", models.PositiveIntegerField()),
                ("since", models.DateTimeField()),
                ("at", models.DateTimeField()),
                ("suspend_at", models.DateTimeField(null=True)),
                ("rule", models.JSONField()),
                ("message", models.TextField()),
            ],
        ),
        migrations.CreateModel(
            name="UserSecret",
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
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="secrets",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "ordering": ["user", "name"],
                "constraints": [
                    models.UniqueConstraint(fields=("user", "name"), name="user_secret_once"),
                    models.CheckConstraint(
                        condition=models.Q(("sealed", ""), _negated=True), name="user_secret_sealed"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("kind", "value")), name="user_secret_is_a_value"
                    ),
                ],
            },
        ),
    ]
