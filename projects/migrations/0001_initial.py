import berth.core.spec.addresses
import django.contrib.postgres.fields
import django.contrib.postgres.indexes
import django.core.validators
import django.db.models.deletion
import django.db.models.functions.datetime
import projects.models.budgets
import uuid
from django.conf import settings
from django.db import migrations, models

from berth.db.initial_migration import InitialMigration

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
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "name",
                    models.CharField(
                        max_length=63,
                        unique=True,
                        validators=[
                            django.core.validators.RegexValidator(
                                "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$",
                                "Use 1 to 63 lowercase letters, digits and hyphens. Start and end with a letter or digit.",
                            )
                        ],
                    ),
                ),
                ("title", models.CharField(blank=True, max_length=200)),
                ("rank", models.IntegerField(default=0, help_text="Higher ranks come first.")),
                (
                    "reclaim_min_runtime",
                    models.PositiveIntegerField(
                        blank=True, help_text="In seconds. Leave empty to use the pool's value.", null=True
                    ),
                ),
                (
                    "preempt_min_runtime",
                    models.PositiveIntegerField(
                        blank=True, help_text="In seconds. Leave empty to use the pool's value.", null=True
                    ),
                ),
                (
                    "created_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(), editable=False
                    ),
                ),
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
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "name",
                    models.CharField(
                        max_length=63,
                        unique=True,
                        validators=[
                            django.core.validators.RegexValidator(
                                "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$",
                                "Use 1 to 63 lowercase letters, digits and hyphens. Start and end with a letter or digit.",
                            )
                        ],
                    ),
                ),
                ("title", models.CharField(blank=True, max_length=200)),
                (
                    "rank",
                    models.IntegerField(
                        default=0, help_text="Higher ranks within the department come first."
                    ),
                ),
                (
                    "reclaim_min_runtime",
                    models.PositiveIntegerField(
                        blank=True,
                        help_text="In seconds. Leave empty to use the department's value.",
                        null=True,
                    ),
                ),
                (
                    "preempt_min_runtime",
                    models.PositiveIntegerField(
                        blank=True,
                        help_text="In seconds. Leave empty to use the department's value.",
                        null=True,
                    ),
                ),
                (
                    "idle_rule",
                    models.JSONField(
                        blank=True,
                        default=dict,
                        help_text="Rule for idle GPUs that replaces the pool's; empty for none.",
                    ),
                ),
                (
                    "created_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(), editable=False
                    ),
                ),
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
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "name",
                    models.CharField(
                        max_length=63,
                        validators=[
                            django.core.validators.RegexValidator(
                                "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$",
                                "Use 1 to 63 lowercase letters, digits and hyphens. Start and end with a letter or digit.",
                            )
                        ],
                    ),
                ),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("value", "Value"),
                            ("registry", "Registry"),
                            ("ssh_key", "SSH key"),
                            ("s3_key", "S3 key"),
                        ],
                        default="value",
                        max_length=16,
                    ),
                ),
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
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("digest", models.CharField(max_length=64)),
                ("size", models.PositiveIntegerField(help_text="In bytes.")),
                (
                    "key",
                    models.UUIDField(default=uuid.uuid4, help_text="Name in the store.", unique=True),
                ),
                (
                    "used_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(),
                        help_text="Time of the last upload that uses the chunk, rounded to the hour.",
                    ),
                ),
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
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("digest", models.CharField(help_text="Digest of the list of files.", max_length=64)),
                ("size", models.PositiveBigIntegerField(help_text="In bytes.")),
                ("file_count", models.PositiveIntegerField()),
                ("files", models.JSONField(help_text="Path, chunks and kind of each file.")),
                (
                    "chunks",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=64),
                        help_text="Digests of the chunks in all files.",
                        size=None,
                    ),
                ),
                (
                    "created_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
                (
                    "used_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(),
                        help_text="Time of the last upload or submission, rounded to the hour.",
                    ),
                ),
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
                (
                    "id",
                    models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False),
                ),
                ("section", models.JSONField(help_text="The document's section `code.git`.")),
                (
                    "state",
                    models.CharField(
                        choices=[("waiting", "Waiting"), ("fetched", "Fetched"), ("failed", "Failed")],
                        default="waiting",
                        max_length=8,
                    ),
                ),
                ("commit", models.CharField(blank=True, max_length=64)),
                (
                    "branch",
                    models.CharField(
                        blank=True, help_text="Branch whose head was the commit.", max_length=255
                    ),
                ),
                (
                    "secret_version",
                    models.PositiveIntegerField(help_text="Version of the secret that was used.", null=True),
                ),
                (
                    "attempts",
                    models.PositiveIntegerField(default=0, help_text="Number of failed attempts."),
                ),
                ("retry_at", models.DateTimeField(null=True)),
                (
                    "error",
                    models.TextField(blank=True, help_text="Error of the last failed attempt."),
                ),
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
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("gpu_hours", models.BigIntegerField()),
                (
                    "warn_at",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.PositiveIntegerField(),
                        default=projects.models.budgets.default_warnings,
                        help_text="Percentages of the budget, ascending.",
                        size=None,
                    ),
                ),
                ("version", models.BigIntegerField(editable=False)),
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
                (
                    "id",
                    models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False),
                ),
                (
                    "name",
                    models.CharField(
                        max_length=63,
                        validators=[
                            django.core.validators.RegexValidator(
                                "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$",
                                "Use 1 to 63 lowercase letters, digits and hyphens. Start and end with a letter or digit.",
                            )
                        ],
                    ),
                ),
                ("spec", models.JSONField()),
                ("priority", models.IntegerField(default=50)),
                (
                    "gpu_milli_min",
                    models.BigIntegerField(
                        default=0,
                        help_text="GPUs requested by one task's minimum gang, in thousandths.",
                    ),
                ),
                ("task_count", models.PositiveIntegerField(help_text="Number of tasks.")),
                (
                    "max_running",
                    models.PositiveIntegerField(
                        blank=True,
                        help_text="Maximum number of tasks that hold resources at the same time.",
                        null=True,
                    ),
                ),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("active", "Active"),
                            ("completed", "Completed"),
                            ("failed", "Failed"),
                            ("cancelled", "Cancelled"),
                        ],
                        default="active",
                        max_length=10,
                    ),
                ),
                (
                    "submitted_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
                ("ended_at", models.DateTimeField(blank=True, null=True)),
                (
                    "unschedulable_at",
                    models.DateTimeField(
                        blank=True,
                        help_text="Time of the notification that a task is unschedulable.",
                        null=True,
                    ),
                ),
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
                (
                    "id",
                    models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False),
                ),
                (
                    "name",
                    models.CharField(
                        max_length=63,
                        validators=[
                            django.core.validators.RegexValidator(
                                "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$",
                                "Use 1 to 63 lowercase letters, digits and hyphens. Start and end with a letter or digit.",
                            )
                        ],
                    ),
                ),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("training", "Training"),
                            ("elastic", "Elastic"),
                            ("interactive", "Interactive"),
                            ("service", "Service"),
                        ],
                        default="training",
                        max_length=12,
                    ),
                ),
                ("spec", models.JSONField()),
                ("labels", models.JSONField(default=dict)),
                (
                    "code",
                    models.ForeignKey(
                        blank=True,
                        db_index=False,
                        help_text="Files that each pod starts with; empty after they have expired.",
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
                (
                    "code_wait",
                    models.TextField(
                        blank=True,
                        help_text="Reason why the workload's code is not available yet, as a sentence.",
                    ),
                ),
                (
                    "pools",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=63),
                        help_text="Pool names in order of preference.",
                        size=None,
                    ),
                ),
                ("priority", models.IntegerField(default=50)),
                ("preemptible", models.BooleanField(default=True)),
                (
                    "array_index",
                    models.PositiveIntegerField(
                        blank=True, help_text="Index of the task in its array.", null=True
                    ),
                ),
                (
                    "attempt",
                    models.PositiveIntegerField(
                        default=1, help_text="Number of times the task was submitted."
                    ),
                ),
                (
                    "superseded",
                    models.BooleanField(default=False, help_text="Whether the task has a later attempt."),
                ),
                (
                    "held",
                    models.BooleanField(
                        default=False,
                        help_text="Whether a pending task waits for earlier tasks and is hidden from the scheduler.",
                    ),
                ),
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
                (
                    "phase",
                    models.CharField(
                        choices=[
                            ("pending", "Pending"),
                            ("reserved", "Reserved"),
                            ("starting", "Starting"),
                            ("running", "Running"),
                            ("stopping", "Stopping"),
                            ("suspended", "Suspended"),
                            ("completed", "Completed"),
                            ("failed", "Failed"),
                            ("cancelled", "Cancelled"),
                        ],
                        default="pending",
                        max_length=10,
                    ),
                ),
                ("reason", models.CharField(blank=True, max_length=40)),
                ("message", models.TextField(blank=True)),
                ("since", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "pending_since",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(),
                        help_text="Start of the last pending period, including the time with reserved resources.",
                    ),
                ),
                (
                    "next_phase",
                    models.CharField(
                        blank=True,
                        choices=[
                            ("pending", "Pending"),
                            ("reserved", "Reserved"),
                            ("starting", "Starting"),
                            ("running", "Running"),
                            ("stopping", "Stopping"),
                            ("suspended", "Suspended"),
                            ("completed", "Completed"),
                            ("failed", "Failed"),
                            ("cancelled", "Cancelled"),
                        ],
                        help_text="Phase after stopping.",
                        max_length=10,
                    ),
                ),
                ("submitted_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "requeued_at",
                    models.DateTimeField(
                        blank=True,
                        help_text="Time of the last edit that increased the request, which determines the queue position.",
                        null=True,
                    ),
                ),
                (
                    "started_at",
                    models.DateTimeField(
                        blank=True, help_text="Start of the current or last run.", null=True
                    ),
                ),
                ("first_started_at", models.DateTimeField(blank=True, null=True)),
                ("ended_at", models.DateTimeField(blank=True, null=True)),
                ("last_checkpoint_at", models.DateTimeField(blank=True, null=True)),
                ("stale_since", models.DateTimeField(blank=True, null=True)),
                ("backoff_until", models.DateTimeField(blank=True, null=True)),
                (
                    "start_refusal",
                    models.TextField(
                        blank=True,
                        help_text="Why the last start failed, as a clause, until the next one.",
                    ),
                ),
                (
                    "max_runtime",
                    models.PositiveIntegerField(blank=True, help_text="In seconds, per run.", null=True),
                ),
                ("deadline", models.DateTimeField(blank=True, null=True)),
                (
                    "idle_timeout",
                    models.PositiveIntegerField(
                        blank=True, help_text="Seconds without log output or port visits.", null=True
                    ),
                ),
                ("run", models.PositiveIntegerField(default=0, help_text="Number of starts.")),
                ("preemptions", models.PositiveIntegerField(default=0)),
                (
                    "restarts",
                    models.PositiveIntegerField(default=0, help_text="Restarts by retry rules."),
                ),
                (
                    "retries",
                    models.JSONField(
                        blank=True,
                        default=dict,
                        help_text="Restarts by kind of failure, including those after lost nodes.",
                    ),
                ),
                (
                    "avoided_nodes",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=64),
                        blank=True,
                        default=list,
                        help_text="Nodes on which the workload failed, and on which retry rules do not restart it.",
                        size=None,
                    ),
                ),
                ("exit_code", models.IntegerField(blank=True, null=True)),
                (
                    "rendezvous",
                    models.JSONField(
                        blank=True, help_text="Address and port of rank 0 in this run.", null=True
                    ),
                ),
                (
                    "gpu_milli_min",
                    models.BigIntegerField(
                        default=0, help_text="GPUs requested by the minimum gang, in thousandths."
                    ),
                ),
                (
                    "gpu_milli_now",
                    models.BigIntegerField(
                        default=0, help_text="GPUs allocated to the workload's pods, in thousandths."
                    ),
                ),
                (
                    "explanation",
                    models.JSONField(
                        blank=True,
                        help_text="Blockers, queue position and ordering from the last cycle.",
                        null=True,
                    ),
                ),
                ("explained_at", models.DateTimeField(blank=True, null=True)),
                (
                    "pending_reasons",
                    models.JSONField(
                        blank=True,
                        default=list,
                        editable=False,
                        help_text="Main pending reasons in order, each with its start and end.",
                    ),
                ),
                ("version", models.PositiveBigIntegerField(default=1, editable=False)),
                (
                    "edits",
                    models.PositiveIntegerField(
                        default=0, editable=False, help_text="Number of times the document was edited."
                    ),
                ),
                (
                    "changed_in",
                    models.BigIntegerField(
                        default=0,
                        editable=False,
                        help_text="Transaction that last changed a column that the scheduler reads, set by the database.",
                    ),
                ),
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
                (
                    "id",
                    models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False),
                ),
                ("role", models.CharField(max_length=63)),
                ("index", models.PositiveIntegerField()),
                ("run", models.PositiveIntegerField(help_text="Run number within the workload.")),
                ("rank", models.PositiveIntegerField(default=0, help_text="Value of RANK in the run.")),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("starting", "Starting"),
                            ("running", "Running"),
                            ("stopping", "Stopping"),
                            ("succeeded", "Succeeded"),
                            ("failed", "Failed"),
                            ("stopped", "Stopped"),
                            ("lost", "Lost"),
                        ],
                        default="starting",
                        max_length=10,
                    ),
                ),
                ("since", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("started_at", models.DateTimeField(blank=True, null=True)),
                ("ended_at", models.DateTimeField(blank=True, null=True)),
                (
                    "stop_reason",
                    models.CharField(blank=True, help_text="Reason for stopping.", max_length=40),
                ),
                (
                    "signalled_at",
                    models.DateTimeField(
                        blank=True, help_text="Time of the signal ahead of SIGTERM.", null=True
                    ),
                ),
                ("exit_code", models.IntegerField(blank=True, null=True)),
                ("signal", models.IntegerField(blank=True, null=True)),
                ("message", models.TextField(blank=True)),
                (
                    "address",
                    models.CharField(
                        blank=True,
                        help_text="The pod's own network address; empty for its node's.",
                        max_length=64,
                    ),
                ),
                (
                    "endpoint",
                    models.JSONField(blank=True, help_text="Address and port for serving.", null=True),
                ),
                (
                    "ports",
                    models.JSONField(
                        blank=True,
                        help_text="Address and port number of each opened port, by name.",
                        null=True,
                    ),
                ),
                (
                    "limits",
                    models.JSONField(
                        blank=True, default=dict, help_text="Memory and CPU limits with their sources."
                    ),
                ),
                ("memory_peak_mib", models.PositiveBigIntegerField(blank=True, null=True)),
                (
                    "warnings",
                    models.PositiveIntegerField(default=0, help_text="Number of warnings during the run."),
                ),
                (
                    "files_until",
                    models.DateTimeField(
                        blank=True,
                        help_text="Time until which the node keeps the failed pod's files.",
                        null=True,
                    ),
                ),
                (
                    "changed_in",
                    models.BigIntegerField(
                        default=0,
                        editable=False,
                        help_text="Transaction that last changed a column that the scheduler reads, set by the database.",
                    ),
                ),
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
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("model_name", models.CharField(default="default", max_length=200)),
                ("role", models.CharField(help_text="Role whose replicas are the engines.", max_length=63)),
                ("initial_engines", models.PositiveIntegerField()),
                (
                    "next_number",
                    models.PositiveIntegerField(help_text="Number of the next engine to be added."),
                ),
                (
                    "updating_since",
                    models.DateTimeField(
                        blank=True,
                        help_text="Time at which a trainer began to update the weights of the initial engines.",
                        null=True,
                    ),
                ),
                (
                    "syncing_since",
                    models.DateTimeField(
                        blank=True, help_text="Start of the weight copy in progress.", null=True
                    ),
                ),
                (
                    "weight_version",
                    models.CharField(
                        blank=True, help_text="Weight version of the initial engines.", max_length=200
                    ),
                ),
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
                (
                    "id",
                    models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False),
                ),
                (
                    "direction",
                    models.CharField(
                        choices=[("scale_out", "Scale-out"), ("scale_in", "Scale-in")], max_length=9
                    ),
                ),
                (
                    "mode",
                    models.CharField(
                        choices=[("managed", "managed"), ("external", "external")], max_length=8
                    ),
                ),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("PENDING", "Pending"),
                            ("CREATING", "Creating"),
                            ("CONNECTING", "Connecting"),
                            ("HEALTH_CHECKING", "Health Checking"),
                            ("WEIGHT_SYNCING", "Weight Syncing"),
                            ("READY", "Ready"),
                            ("ROLLING_BACK", "Rolling Back"),
                            ("DRAINING", "Draining"),
                            ("REMOVING", "Removing"),
                            ("ACTIVE", "Active"),
                            ("PARTIAL", "Partial"),
                            ("COMPLETED", "Completed"),
                            ("NOOP", "Noop"),
                            ("FAILED", "Failed"),
                            ("CANCELLED", "Cancelled"),
                        ],
                        default="PENDING",
                        max_length=15,
                    ),
                ),
                ("ends_as", models.CharField(blank=True, max_length=9)),
                ("model_name", models.CharField(max_length=200)),
                ("num_replicas", models.PositiveIntegerField(default=0)),
                ("engine_urls", models.JSONField(default=list)),
                ("timeout_secs", models.FloatField()),
                (
                    "policy",
                    models.CharField(
                        blank=True, help_text="Policy: rollback_all or keep_partial.", max_length=12
                    ),
                ),
                ("force", models.BooleanField(default=False)),
                ("requested_by", models.CharField(max_length=150)),
                ("by_autoscaler", models.BooleanField(default=False)),
                ("reason", models.TextField(blank=True)),
                ("created_at", models.DateTimeField()),
                ("updated_at", models.DateTimeField()),
                ("ended_at", models.DateTimeField(blank=True, null=True)),
                ("deadline", models.DateTimeField()),
                ("error_message", models.TextField(blank=True)),
                (
                    "failure",
                    models.CharField(
                        blank=True,
                        help_text="Cause: provision, init, health, weight_sync, router or timeout.",
                        max_length=11,
                    ),
                ),
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
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("name", models.CharField(max_length=100)),
                (
                    "prefix",
                    models.CharField(
                        help_text="First characters of the token, to identify it.", max_length=12
                    ),
                ),
                ("digest", models.CharField(max_length=64, unique=True)),
                ("scopes", models.JSONField(default=list)),
                (
                    "created_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(), editable=False
                    ),
                ),
                ("expires_at", models.DateTimeField(blank=True, null=True)),
                ("last_used_at", models.DateTimeField(blank=True, null=True)),
                ("revoked_at", models.DateTimeField(blank=True, null=True)),
                (
                    "session_hash",
                    models.CharField(
                        blank=True,
                        default="",
                        editable=False,
                        help_text="Set for tokens created by sign-in. The hash changes when the user's password does.",
                        max_length=64,
                    ),
                ),
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
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(), editable=False
                    ),
                ),
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
                (
                    "change_id",
                    models.BigIntegerField(help_text="Quota change that this entry belongs to.", null=True),
                ),
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
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("month", models.DateField(help_text="First day of the month.")),
                ("percent", models.PositiveIntegerField()),
                (
                    "at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(), editable=False
                    ),
                ),
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
                (
                    "address",
                    models.CharField(help_text="URL at which the workers reach this server.", max_length=255),
                ),
                (
                    "executor",
                    models.CharField(
                        choices=[("process", "Process"), ("thread", "Thread")],
                        default="process",
                        max_length=10,
                    ),
                ),
                ("slots", models.PositiveIntegerField(default=1, help_text="Concurrent calls per node.")),
                ("max_attempts", models.PositiveIntegerField(default=3)),
                (
                    "idle_timeout",
                    models.PositiveIntegerField(
                        help_text="The session ends after this many seconds without a request from the client."
                    ),
                ),
                (
                    "python",
                    models.CharField(
                        help_text="Python version of the client. Workers must run the same version.",
                        max_length=20,
                    ),
                ),
                ("cloudpickle", models.CharField(max_length=20)),
                ("setup", models.BinaryField(default=bytes, help_text="Pickled plugins of the client.")),
                (
                    "turn",
                    models.PositiveBigIntegerField(default=0, help_text="Node that receives the next call."),
                ),
                (
                    "ended_count",
                    models.PositiveBigIntegerField(default=0, help_text="Number of ended calls."),
                ),
                (
                    "received_count",
                    models.PositiveBigIntegerField(
                        default=0, help_text="Number of ended calls that the client has received."
                    ),
                ),
                (
                    "error",
                    models.TextField(
                        blank=True, help_text="Error that prevents the session from running functions."
                    ),
                ),
                (
                    "seen_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(),
                        help_text="Time of the client's last request.",
                    ),
                ),
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
                ("node", models.PositiveIntegerField(help_text="Rank of the pod in the run.")),
                (
                    "state",
                    models.CharField(
                        choices=[("ready", "Ready"), ("gone", "Gone")], default="ready", max_length=10
                    ),
                ),
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
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "key",
                    models.UUIDField(help_text="Idempotency key chosen by the client."),
                ),
                ("is_broadcast", models.BooleanField(default=False)),
                (
                    "is_late",
                    models.BooleanField(
                        default=False,
                        help_text="Part of a broadcast for a worker that joined after the broadcast was sent.",
                    ),
                ),
                ("node", models.PositiveIntegerField(blank=True, null=True)),
                (
                    "state",
                    models.CharField(
                        choices=[("pending", "Pending"), ("leased", "Leased"), ("ended", "Ended")],
                        default="pending",
                        max_length=10,
                    ),
                ),
                (
                    "outcome",
                    models.CharField(
                        blank=True,
                        choices=[
                            ("value", "Value"),
                            ("error", "Error"),
                            ("failed", "Failed"),
                            ("cancelled", "Cancelled"),
                        ],
                        max_length=10,
                    ),
                ),
                (
                    "error",
                    models.JSONField(blank=True, default=dict, help_text="Type, message and traceback."),
                ),
                ("attempts", models.PositiveIntegerField(default=0)),
                (
                    "delivered",
                    models.BooleanField(default=False, help_text="Delivered to the worker that leased it."),
                ),
                ("payload", models.BinaryField(default=bytes)),
                ("result", models.BinaryField(default=bytes)),
                (
                    "size",
                    models.PositiveBigIntegerField(
                        default=0, help_text="Size of payload and result in bytes."
                    ),
                ),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "ended",
                    models.PositiveBigIntegerField(
                        blank=True, help_text="Sequence number in the order in which calls ended.", null=True
                    ),
                ),
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
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(), editable=False
                    ),
                ),
                ("kind", models.CharField(max_length=40)),
                ("project_id", models.BigIntegerField(null=True)),
                ("workload_id", models.UUIDField(null=True)),
                ("subject", models.CharField(help_text="Name of the object at that time.", max_length=200)),
                ("message", models.TextField()),
                ("data", models.JSONField(default=dict)),
                (
                    "actor",
                    models.CharField(
                        help_text="User name, or the component of Berth that acted.", max_length=150
                    ),
                ),
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
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("issuer", models.CharField(max_length=255)),
                ("subject", models.CharField(max_length=255)),
                (
                    "created_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(), editable=False
                    ),
                ),
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
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "kind",
                    models.CharField(choices=[("pod", "Pod"), ("workspace", "Workspace")], max_length=10),
                ),
                ("name", models.CharField(help_text="Name in the pool's runtime.", max_length=64)),
                (
                    "left_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(), editable=False
                    ),
                ),
                (
                    "handed_at",
                    models.DateTimeField(
                        editable=False, help_text="Time of the last request for cleanup.", null=True
                    ),
                ),
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
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "role",
                    models.CharField(
                        choices=[
                            ("platform_admin", "Platform Admin"),
                            ("department_admin", "Department Admin"),
                            ("project_admin", "Project Admin"),
                            ("member", "Member"),
                            ("viewer", "Viewer"),
                        ],
                        max_length=20,
                    ),
                ),
                (
                    "created_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(), editable=False
                    ),
                ),
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
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("gpu_milli", models.BigIntegerField(blank=True, default=0, null=True)),
                ("cpu_milli", models.BigIntegerField(blank=True, null=True)),
                ("memory_mib", models.BigIntegerField(blank=True, null=True)),
                ("limit_gpu_milli", models.BigIntegerField(blank=True, null=True)),
                ("limit_cpu_milli", models.BigIntegerField(blank=True, null=True)),
                ("limit_memory_mib", models.BigIntegerField(blank=True, null=True)),
                ("weight_gpu", models.FloatField(default=1.0)),
                ("weight_cpu", models.FloatField(default=1.0)),
                ("weight_memory", models.FloatField(default=1.0)),
                (
                    "over_quota",
                    models.BooleanField(
                        default=True, help_text="Preemptible workloads may exceed the quota."
                    ),
                ),
                ("rank", models.IntegerField(blank=True, null=True)),
                ("version", models.PositiveBigIntegerField(default=1, editable=False)),
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
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(), editable=False
                    ),
                ),
                ("actor", models.CharField(max_length=150)),
                ("comment", models.CharField(blank=True, help_text="Reason for the change.", max_length=500)),
                ("reverts", models.BigIntegerField(help_text="Change that this one reverts.", null=True)),
                (
                    "written",
                    models.JSONField(
                        help_text="Full values of each changed quota, before and after, in document units."
                    ),
                ),
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
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("due_at", models.DateTimeField()),
                ("done_at", models.DateTimeField(null=True)),
                (
                    "outcome",
                    models.TextField(
                        blank=True, help_text="Quotas not reverted because they have been edited since."
                    ),
                ),
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
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
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
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("name", models.CharField(max_length=60)),
                ("query", models.TextField(help_text="Query string of the page.")),
                (
                    "saved_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(), editable=False
                    ),
                ),
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
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("at", models.DateTimeField()),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("PENDING", "Pending"),
                            ("CREATING", "Creating"),
                            ("CONNECTING", "Connecting"),
                            ("HEALTH_CHECKING", "Health Checking"),
                            ("WEIGHT_SYNCING", "Weight Syncing"),
                            ("READY", "Ready"),
                            ("ROLLING_BACK", "Rolling Back"),
                            ("DRAINING", "Draining"),
                            ("REMOVING", "Removing"),
                            ("ACTIVE", "Active"),
                            ("PARTIAL", "Partial"),
                            ("COMPLETED", "Completed"),
                            ("NOOP", "Noop"),
                            ("FAILED", "Failed"),
                            ("CANCELLED", "Cancelled"),
                        ],
                        max_length=15,
                    ),
                ),
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
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "action",
                    models.CharField(
                        choices=[("scale_out", "Scale-out"), ("scale_in", "Scale-in")], max_length=9
                    ),
                ),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("PENDING", "Pending"),
                            ("CREATING", "Creating"),
                            ("CONNECTING", "Connecting"),
                            ("HEALTH_CHECKING", "Health Checking"),
                            ("WEIGHT_SYNCING", "Weight Syncing"),
                            ("READY", "Ready"),
                            ("ROLLING_BACK", "Rolling Back"),
                            ("DRAINING", "Draining"),
                            ("REMOVING", "Removing"),
                            ("ACTIVE", "Active"),
                            ("PARTIAL", "Partial"),
                            ("COMPLETED", "Completed"),
                            ("NOOP", "Noop"),
                            ("FAILED", "Failed"),
                            ("CANCELLED", "Cancelled"),
                        ],
                        max_length=15,
                    ),
                ),
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
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
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
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("enabled", models.BooleanField(default=False)),
                (
                    "settings",
                    models.JSONField(
                        default=dict, help_text="Settings document. Missing keys take their defaults."
                    ),
                ),
                ("memory", models.JSONField(default=dict)),
                ("last_decision", models.JSONField(blank=True, null=True)),
                ("last_scale_at", models.DateTimeField(blank=True, null=True)),
                (
                    "last_scale_action",
                    models.CharField(
                        blank=True,
                        choices=[("scale_out", "Scale-out"), ("scale_in", "Scale-in")],
                        max_length=9,
                    ),
                ),
                ("scraped_at", models.DateTimeField(blank=True, null=True)),
                ("evaluated_at", models.DateTimeField(blank=True, null=True)),
                ("last_error", models.TextField(blank=True, help_text="Error from the last decision.")),
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
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("deleted_in", models.BigIntegerField(editable=False)),
                (
                    "deleted_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(), editable=False
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="WorkloadRole",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("position", models.PositiveIntegerField(help_text="Position in the document.")),
                ("name", models.CharField(max_length=63)),
                ("min", models.PositiveIntegerField()),
                ("max", models.PositiveIntegerField()),
                ("gpu_milli", models.PositiveIntegerField(default=0, help_text="Per device.")),
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
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("actor", models.CharField(help_text="User in the audit log.", max_length=150)),
                ("request_id", models.CharField(blank=True, max_length=64)),
                ("workload", models.UUIDField(help_text="ID of the workload.")),
                ("workload_name", models.CharField(max_length=200)),
                (
                    "noun",
                    models.CharField(
                        help_text="Kind of channel in the audit log, for example shell.", max_length=20
                    ),
                ),
                ("details", models.JSONField(help_text="Details for the audit log.")),
                ("opened_at", models.DateTimeField()),
                (
                    "seen_at",
                    models.DateTimeField(help_text="Time of the last record that the channel is open."),
                ),
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
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("digest", models.CharField(max_length=64, unique=True)),
                ("port", models.CharField(max_length=15)),
                (
                    "session_hash",
                    models.CharField(
                        help_text="Hash that changes when the user's password does.", max_length=64
                    ),
                ),
                (
                    "session_key",
                    models.CharField(
                        blank=True,
                        default="",
                        editable=False,
                        help_text="Browser session that requested the link. The visit ends when the session does.",
                        max_length=40,
                    ),
                ),
                ("issued_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("expires_at", models.DateTimeField(help_text="Expiry of the link.")),
                ("used_at", models.DateTimeField(blank=True, null=True)),
                ("cookie_digest", models.CharField(blank=True, max_length=64, null=True, unique=True)),
                ("visit_until", models.DateTimeField(help_text="Latest possible end of the visit.")),
                (
                    "seen_at",
                    models.DateTimeField(blank=True, help_text="Time of the last request.", null=True),
                ),
                (
                    "token",
                    models.ForeignKey(
                        blank=True,
                        help_text="Token that requested the link. The visit ends when the token does.",
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
                        name="port_visit_seen",
                    )
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("cookie_digest__isnull", True), ("used_at__isnull", True)),
                            models.Q(("cookie_digest__isnull", False), ("used_at__isnull", False)),
                            _connector="OR",
                        ),
                        name="port_link_is_used_for_a_visit",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="InferenceEngine",
            fields=[
                (
                    "id",
                    models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False),
                ),
                ("number", models.PositiveIntegerField()),
                (
                    "origin",
                    models.CharField(
                        choices=[("initial", "Initial"), ("managed", "Managed"), ("external", "External")],
                        max_length=8,
                    ),
                ),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("CREATING", "Creating"),
                            ("CONNECTING", "Connecting"),
                            ("HEALTH_CHECKING", "Health Checking"),
                            ("WEIGHT_SYNCING", "Weight Syncing"),
                            ("READY", "Ready"),
                            ("ACTIVE", "Active"),
                            ("DRAINING", "Draining"),
                            ("REMOVING", "Removing"),
                            ("REMOVED", "Removed"),
                            ("FAILED", "Failed"),
                        ],
                        max_length=15,
                    ),
                ),
                ("since", models.DateTimeField()),
                (
                    "index",
                    models.PositiveIntegerField(default=0, help_text="Replica index in the workload's role."),
                ),
                (
                    "pod_id",
                    models.UUIDField(blank=True, help_text="Pod that serves at this address.", null=True),
                ),
                ("url", models.CharField(blank=True, max_length=500)),
                ("router_url", models.CharField(blank=True, max_length=500)),
                (
                    "is_routed",
                    models.BooleanField(
                        default=False, help_text="The router has confirmed that the engine is registered."
                    ),
                ),
                (
                    "isolated_at",
                    models.DateTimeField(
                        blank=True,
                        help_text="Time at which the router stopped sending new requests.",
                        null=True,
                    ),
                ),
                ("is_healthy", models.BooleanField(default=False)),
                (
                    "failures",
                    models.PositiveIntegerField(default=0, help_text="Consecutive failed health checks."),
                ),
                (
                    "connection_failures",
                    models.PositiveIntegerField(
                        default=0, help_text="Consecutive failed connections to an external engine."
                    ),
                ),
                ("looked_at", models.DateTimeField(blank=True, null=True)),
                (
                    "running",
                    models.PositiveIntegerField(
                        blank=True, help_text="Number of running requests.", null=True
                    ),
                ),
                ("weight_version", models.CharField(blank=True, max_length=200)),
                (
                    "sync",
                    models.CharField(
                        blank=True,
                        help_text="State of the weight copy: copying, done or failed.",
                        max_length=7,
                    ),
                ),
                ("sync_message", models.TextField(blank=True)),
                ("sync_tried_at", models.DateTimeField(blank=True, null=True)),
                ("router_message", models.TextField(blank=True)),
                (
                    "ends_as",
                    models.CharField(
                        blank=True, help_text="Final state after removal: REMOVED or FAILED.", max_length=7
                    ),
                ),
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
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "events",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=20), size=None
                    ),
                ),
                (
                    "pending_minutes",
                    models.PositiveIntegerField(
                        default=60,
                        help_text="Minutes a workload must be pending before a notification is sent.",
                    ),
                ),
                ("to", models.TextField()),
                (
                    "channel",
                    models.CharField(
                        choices=[
                            (
                                berth.core.spec.addresses.Channel["MAIL"],
                                berth.core.spec.addresses.Channel["MAIL"],
                            ),
                            (
                                berth.core.spec.addresses.Channel["WEBHOOK"],
                                berth.core.spec.addresses.Channel["WEBHOOK"],
                            ),
                            (
                                berth.core.spec.addresses.Channel["CHAT"],
                                berth.core.spec.addresses.Channel["CHAT"],
                            ),
                        ],
                        max_length=7,
                    ),
                ),
                ("created_by", models.CharField(max_length=150)),
                (
                    "created_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(), editable=False
                    ),
                ),
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
                        help_text="User whose workloads the subscription covers.",
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
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(), editable=False
                    ),
                ),
                (
                    "kind",
                    models.CharField(
                        help_text="Event: started, completed, failed, preempted, cancelled, unschedulable, pending, idle, budget or pool.",
                        max_length=20,
                    ),
                ),
                ("workload_id", models.UUIDField(null=True)),
                ("project_id", models.BigIntegerField(null=True)),
                ("to", models.TextField()),
                (
                    "channel",
                    models.CharField(
                        choices=[
                            (
                                berth.core.spec.addresses.Channel["MAIL"],
                                berth.core.spec.addresses.Channel["MAIL"],
                            ),
                            (
                                berth.core.spec.addresses.Channel["WEBHOOK"],
                                berth.core.spec.addresses.Channel["WEBHOOK"],
                            ),
                            (
                                berth.core.spec.addresses.Channel["CHAT"],
                                berth.core.spec.addresses.Channel["CHAT"],
                            ),
                        ],
                        max_length=7,
                    ),
                ),
                ("content", models.JSONField(help_text="Content of the notification.")),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("pending", "Pending"),
                            ("delivered", "Delivered"),
                            ("failed", "Failed"),
                        ],
                        default="pending",
                        max_length=9,
                    ),
                ),
                ("attempts", models.PositiveIntegerField(default=0)),
                ("next_attempt_at", models.DateTimeField(help_text="Time of the next attempt.")),
                ("last_error", models.TextField(blank=True)),
                ("ended_at", models.DateTimeField(null=True)),
                (
                    "subscription_id",
                    models.BigIntegerField(
                        help_text="Empty if the address is from a workload document.", null=True
                    ),
                ),
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
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "name",
                    models.CharField(
                        max_length=63,
                        validators=[
                            django.core.validators.RegexValidator(
                                "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$",
                                "Use 1 to 63 lowercase letters, digits and hyphens. Start and end with a letter or digit.",
                            )
                        ],
                    ),
                ),
                ("description", models.CharField(blank=True, max_length=200)),
                (
                    "text",
                    models.TextField(
                        help_text="Workload document in YAML for this project. Its `name` is optional."
                    ),
                ),
                ("changed_by", models.CharField(max_length=150)),
                ("changed_at", models.DateTimeField(auto_now=True)),
                ("version", models.BigIntegerField(editable=False)),
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
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("run", models.PositiveIntegerField(help_text="Run number within the workload.")),
                ("image", models.CharField(help_text="Reference in the document.", max_length=512)),
                (
                    "digest",
                    models.CharField(blank=True, help_text="Empty until the tag is resolved.", max_length=71),
                ),
                ("resolved_at", models.DateTimeField(blank=True, null=True)),
                (
                    "attempts",
                    models.PositiveIntegerField(default=0, help_text="Failed attempts to resolve the tag."),
                ),
                ("retry_at", models.DateTimeField(blank=True, null=True)),
                (
                    "error",
                    models.TextField(blank=True, help_text="Error of the last failed attempt."),
                ),
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
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "name",
                    models.CharField(
                        max_length=63,
                        validators=[
                            django.core.validators.RegexValidator(
                                "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$",
                                "Use 1 to 63 lowercase letters, digits and hyphens. Start and end with a letter or digit.",
                            )
                        ],
                    ),
                ),
                ("cron", models.CharField(max_length=120)),
                ("time_zone", models.CharField(default="UTC", max_length=64)),
                (
                    "overlap",
                    models.CharField(
                        choices=[("skip", "Skip"), ("queue", "Queue"), ("replace", "Replace")],
                        default="skip",
                        max_length=10,
                    ),
                ),
                (
                    "text",
                    models.TextField(
                        blank=True, help_text="Workload document in YAML; empty if a template is named."
                    ),
                ),
                (
                    "template",
                    models.CharField(
                        blank=True, help_text="Name of a template of the project.", max_length=63
                    ),
                ),
                (
                    "next_at",
                    models.DateTimeField(
                        blank=True, help_text="Next due time; empty while paused.", null=True
                    ),
                ),
                ("paused_at", models.DateTimeField(blank=True, null=True)),
                (
                    "pause_message",
                    models.TextField(blank=True, help_text="Reason why the schedule is paused."),
                ),
                (
                    "retry_at",
                    models.DateTimeField(
                        blank=True,
                        help_text="When to process the schedule again after an internal error.",
                        null=True,
                    ),
                ),
                ("changed_by", models.CharField(max_length=150)),
                ("changed_at", models.DateTimeField(auto_now=True)),
                ("version", models.BigIntegerField(editable=False)),
                (
                    "owner",
                    models.ForeignKey(
                        help_text="User who last changed the schedule. The schedule submits with the rights of this user.",
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
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("due_at", models.DateTimeField()),
                (
                    "outcome",
                    models.CharField(
                        choices=[
                            ("submitted", "Submitted"),
                            ("queued", "Queued"),
                            ("skipped", "Skipped"),
                            ("refused", "Refused"),
                        ],
                        max_length=10,
                    ),
                ),
                ("message", models.TextField(blank=True)),
                (
                    "started_by",
                    models.CharField(
                        blank=True,
                        help_text="User who started the run manually; empty for scheduled runs.",
                        max_length=150,
                    ),
                ),
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
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("name", models.CharField(max_length=64)),
                (
                    "steps",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(),
                        default=list,
                        help_text="Steps of the stored points.",
                        size=None,
                    ),
                ),
                (
                    "values",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.FloatField(), default=list, size=None
                    ),
                ),
                (
                    "stride",
                    models.BigIntegerField(
                        default=1, help_text="Number of steps for which one point is stored."
                    ),
                ),
                ("last_step", models.BigIntegerField(null=True)),
                ("last_value", models.FloatField(null=True)),
                ("min_step", models.BigIntegerField(null=True)),
                ("min_value", models.FloatField(null=True)),
                ("max_step", models.BigIntegerField(null=True)),
                ("max_value", models.FloatField(null=True)),
                (
                    "not_finite",
                    models.PositiveIntegerField(
                        default=0, help_text="Number of values that were not finite."
                    ),
                ),
                (
                    "not_finite_step",
                    models.BigIntegerField(
                        help_text="Step of the latest report if its value was not finite.", null=True
                    ),
                ),
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
                        base_field=models.TextField(),
                        default=list,
                        help_text="Declared paths in the pod's directory.",
                        size=None,
                    ),
                ),
                (
                    "volume",
                    models.CharField(
                        blank=True, help_text="Name of the volume that was changed.", max_length=63
                    ),
                ),
                (
                    "source",
                    models.CharField(blank=True, help_text="Digest of the volume's source.", max_length=32),
                ),
                (
                    "state",
                    models.CharField(
                        choices=[("waiting", "Waiting"), ("stored", "Stored"), ("failed", "Failed")],
                        default="waiting",
                        max_length=8,
                    ),
                ),
                (
                    "message",
                    models.TextField(
                        blank=True, help_text="Reason why files are not stored, or not stored yet."
                    ),
                ),
                (
                    "skipped",
                    models.JSONField(default=dict, help_text="Reason for each path that was left out."),
                ),
                (
                    "file_count",
                    models.PositiveIntegerField(default=0, help_text="Number of files stored in the volume."),
                ),
                (
                    "size",
                    models.PositiveBigIntegerField(default=0, help_text="Bytes stored in the volume."),
                ),
                (
                    "deleted_count",
                    models.PositiveIntegerField(default=0, help_text="Number of deleted objects."),
                ),
                (
                    "progress",
                    models.JSONField(default=dict, help_text="Files that an unfinished transfer has stored."),
                ),
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
                        help_text="Stored files.",
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
                ("offset", models.BigIntegerField(default=0, help_text="In bytes.")),
                (
                    "is_complete",
                    models.BooleanField(
                        default=False, help_text="Whether the whole log has been read since the pod ended."
                    ),
                ),
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
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("project", "Project"),
                            ("pool", "Pool"),
                            ("user", "User"),
                            ("plugin", "Plugin"),
                        ],
                        max_length=8,
                    ),
                ),
                (
                    "secret",
                    models.BigIntegerField(help_text="Primary key of the secret, which is never reused."),
                ),
                ("version", models.PositiveIntegerField()),
                ("sealed", models.TextField()),
                (
                    "used_at",
                    models.DateTimeField(help_text="Start of the latest run that received the value."),
                ),
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
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("run", models.PositiveIntegerField(help_text="Run number within the workload.")),
                (
                    "owner_kind",
                    models.CharField(
                        choices=[("project", "Project"), ("pool", "Pool"), ("user", "User")], max_length=8
                    ),
                ),
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
                (
                    "since",
                    models.DateTimeField(help_text="Start of the period in which all GPUs have been idle."),
                ),
                ("at", models.DateTimeField(help_text="Time of the warning.")),
                ("suspend_at", models.DateTimeField(help_text="Empty if the rule only warns.", null=True)),
                ("rule", models.JSONField(help_text="Rule at the time of the warning.")),
                ("message", models.TextField()),
            ],
        ),
        migrations.CreateModel(
            name="UserSecret",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "name",
                    models.CharField(
                        max_length=63,
                        validators=[
                            django.core.validators.RegexValidator(
                                "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$",
                                "Use 1 to 63 lowercase letters, digits and hyphens. Start and end with a letter or digit.",
                            )
                        ],
                    ),
                ),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("value", "Value"),
                            ("registry", "Registry"),
                            ("ssh_key", "SSH key"),
                            ("s3_key", "S3 key"),
                        ],
                        default="value",
                        max_length=16,
                    ),
                ),
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
