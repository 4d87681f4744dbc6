"""Browser test data: workload documents that agree with the stored workloads."""

from collections.abc import Mapping
from typing import Any

from projects.models import Workload

# columns with the same name and value in the document, and their defaults
COLUMNS: Mapping[str, Any] = {
    "kind": "training",
    "priority": 50,
    "preemptible": True,
    "max_runtime": None,
    "labels": {},
}


def complete_documents() -> None:
    rows = list(Workload.objects.filter(array=None).prefetch_related("roles"))
    for row in rows:
        values = {key: getattr(row, key) for key, default in COLUMNS.items() if getattr(row, key) != default}
        row.spec = {**row.spec, **values, "pools": row.pools}
        for document, role in zip(row.spec["roles"], row.roles.all(), strict=False):
            if role.min < role.max and document.pop("replicas", None):
                document |= {"min": role.min, "max": role.max}
    Workload.objects.bulk_update(rows, ["spec"])
