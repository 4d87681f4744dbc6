"""Labels of model fields on the admin site, in the application's terms."""

from django.db.models import Model

LABELS = {
    "actor": "user",
    "at": "time",
    "bound_at": "allocated",
    "boot_retry_at": "next boot attempt",
    "busy_at": "last busy",
    "cpu_milli_seconds": "CPU time (core-seconds, thousandths)",
    "cpu_milli": "CPU (thousandths of a core)",
    "created_at": "created",
    "department_name": "department",
    "departed_at": "departed",
    "ended_at": "ended",
    "expires_at": "expires",
    "from_engines": "engines before",
    "gpu_devices": "GPUs per pod",
    "gpu_hours": "GPU-hours",
    "gpu_milli": "GPUs (thousandths)",
    "gpu_milli_min": "minimum GPUs (thousandths)",
    "gpu_milli_now": "allocated GPUs (thousandths)",
    "gpu_milli_seconds": "GPU time (GPU-seconds, thousandths)",
    "initial_engines": "initial engines",
    "is_active": "active",
    "is_healthy": "healthy",
    "is_staff": "admin site",
    "is_superuser": "all rights",
    "issued_at": "issued",
    "joined_at": "joined",
    "last_login": "last sign-in",
    "last_seen_at": "last seen",
    "last_used_at": "last used",
    "limit_cpu_milli": "CPU limit (thousandths of a core)",
    "limit_gpu_milli": "GPU limit (thousandths)",
    "limit_memory_mib": "memory limit (MiB)",
    "looked_at": "last checked",
    "lost_gpu_seconds": "work lost (GPU-seconds)",
    "max_machines": "maximum machines",
    "memory_mib": "memory (MiB)",
    "memory_mib_seconds": "memory time (MiB-seconds)",
    "memory_peak_mib": "peak memory (MiB)",
    "message": "status",
    "model_name": "model",
    "nodes_desired": "desired nodes",
    "nodes_max": "maximum nodes",
    "nodes_min": "minimum nodes",
    "num_replicas": "replicas",
    "object_name": "name",
    "object_type": "object",
    "over_quota": "can exceed quota",
    "phase": "state",
    "pool": "node pool",
    "pool_name": "node pool",
    "preemptions": "evictions",
    "preemptor_name": "preemptor",
    "preemptor_project_name": "preemptor project",
    "price_per_gpu_hour": "price per GPU-hour",
    "project_name": "project",
    "registered_at": "registered",
    "released_at": "released",
    "removed_at": "removed",
    "revoked_at": "revoked",
    "settled_at": "settled",
    "since": "state since",
    "spec": "document",
    "started_at": "started",
    "ticked_at": "last reconciled",
    "submitted_at": "submitted",
    "to_engines": "engines after",
    "triggered_at": "time",
    "updated_at": "changed",
    "updated_by": "changed by",
    "url": "URL",
    "user_name": "user",
    "warn_at": "alert thresholds",
    "weight_cpu": "weight (CPU)",
    "weight_gpu": "weight (GPU)",
    "weight_memory": "weight (memory)",
    "workload_name": "workload",
}
NAME = "Lowercase letters, digits and hyphens. Documents and metrics refer to it, so it is fixed."
TITLE = "Optional full name, shown with the name."
RANK = "From -1000 to 1000. {} are served first."
WEIGHT = "Proportion in which resources beyond the quotas are divided."
HELP_TEXTS = {
    ("department", "name"): NAME,
    ("department", "rank"): RANK.format("Departments with a higher rank"),
    ("department", "title"): TITLE,
    ("nodepool", "name"): NAME,
    ("project", "department"): "A project cannot be moved, because it shares the quota of its department.",
    ("project", "name"): NAME,
    ("project", "rank"): RANK.format("Projects with a higher rank in their department"),
    ("project", "title"): TITLE,
    (
        "quota",
        "rank",
    ): "Queues with a higher rank are served first in this pool. Leave empty to use the owner's.",
    ("quota", "weight_cpu"): WEIGHT,
    ("quota", "weight_gpu"): WEIGHT,
    ("quota", "weight_memory"): WEIGHT,
    ("user", "is_active"): "Deactivated users cannot sign in. Deactivate users instead of deleting them.",
    ("user", "is_staff"): "May sign in to the admin site if the user is also a platform admin.",
    ("user", "is_superuser"): "Has all permissions of a platform admin, without a role.",
}
LABELS_OF_MODEL = {
    ("eviction", "department_name"): "victim's department",
    ("eviction", "preemptor_project_name"): "preemptor's project",
    ("eviction", "project_name"): "victim's project",
    ("nodepool", "autoscale_cooldown"): "scaling cooldown",
    ("nodepool", "autoscale_idle_timeout"): "idle timeout",
    ("nodepool", "consolidation_enabled"): "workload consolidation",
    ("nodepool", "consolidation_max_moves"): "maximum moves per consolidation",
    ("nodepool", "consolidation_max_trials"): "maximum trials per consolidation",
    ("nodepool", "count_all"): "count usage within quota",
    ("nodepool", "fairshare_mode"): "fair share mode",
    ("nodepool", "k"): "usage weight (k)",
    ("nodepool", "node_consolidation_after"): "consolidation delay",
    ("nodepool", "preempt_min_runtime"): "preemption minimum runtime",
    ("nodepool", "reclaim_min_runtime"): "reclaim minimum runtime",
    ("nodepool", "reconcile_tick"): "reconciliation interval",
    ("nodepool", "reservation_after"): "reservation delay",
    ("nodepool", "stale_gang_grace"): "stale gang grace period (s)",
    ("cycle", "bundles"): "decisions",
    ("cycle", "stale"): "outdated",
    ("cycle", "epoch"): "leadership term",
    ("cycle", "engine"): "engine version",
    ("cycle", "trials"): "eviction alternatives compared",
    ("event", "message"): "message",
    ("event", "subject"): "object",
    ("membership", "created_at"): "since",
    ("reservation", "since"): "reserved",
    ("scalingevent", "after"): "nodes after",
    ("scalingevent", "before"): "nodes before",
}


ACRONYMS = {
    "cpu": "CPU", "gpu": "GPU", "gpus": "GPUs", "id": "ID", "ids": "IDs", "mib": "(MiB)", "url": "URL",
}  # fmt: skip


def label_fields(model: type[Model]) -> None:
    """Label a model's fields in the application's terms.

    A field without an entry in LABELS is labelled with the words of its name: `gpus_per_node` is "GPUs per
    node", and `explained_at` is "explained".
    """
    name = str(model._meta.model_name)
    for field in model._meta.fields:
        field.help_text = HELP_TEXTS.get((name, field.name), field.help_text)
        label = LABELS_OF_MODEL.get((name, field.name)) or LABELS.get(field.name)
        if label:
            field.verbose_name = label
        elif field.verbose_name == field.name.replace("_", " "):
            words = field.name.removesuffix("_at").split("_")
            field.verbose_name = " ".join(ACRONYMS.get(word, word) for word in words)
        if field.choices:
            field.choices = [(value, _sentence_case(value, str(title))) for value, title in field.flatchoices]


def _sentence_case(value: object, title: str) -> str:
    """Convert a title that Django has derived from a choice's value to sentence case.

    For example, "Point In Time" becomes "Point in time".
    """
    return title.capitalize() if title == str(value).replace("_", " ").title() else title
