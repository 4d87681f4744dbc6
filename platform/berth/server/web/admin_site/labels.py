"""Labels of model fields on the admin site, in the terms of the application."""

from django.db.models import Model

LABELS = {
    "actor": "user",
    "at": "time",
    "bound_at": "allocated",
    "busy_at": "last busy",
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
    "gpu_model": "GPU model",
    "initial_engines": "engines at the start",
    "is_active": "active",
    "is_healthy": "healthy",
    "is_staff": "staff",
    "is_superuser": "superuser",
    "issued_at": "issued",
    "joined_at": "joined",
    "last_login": "last sign-in",
    "last_seen_at": "last seen",
    "last_used_at": "last used",
    "max_machines": "maximum machines",
    "memory_mib": "memory (MiB)",
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
    "project_name": "project",
    "registered_at": "registered",
    "released_at": "released",
    "removed_at": "removed",
    "revoked_at": "revoked",
    "settled_at": "settled",
    "since": "state since",
    "spec": "document",
    "started_at": "started",
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
LABELS_OF_MODEL = {
    ("membership", "created_at"): "since",
    ("reservation", "since"): "reserved",
    ("scalingevent", "after"): "nodes after",
    ("scalingevent", "before"): "nodes before",
}


def label_fields(model: type[Model]) -> None:
    """Give the model's fields the labels of the application. Migrations do not record them."""
    name = str(model._meta.model_name)
    for field in model._meta.fields:
        label = LABELS_OF_MODEL.get((name, field.name)) or LABELS.get(field.name)
        if label:
            field.verbose_name = label
