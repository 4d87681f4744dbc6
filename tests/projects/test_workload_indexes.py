"""Tests that lookups of workloads use indexes that do not cover all rows."""

import uuid
from typing import Any

import pytest
from django.db import connection
from django.db.models import QuerySet

from projects.models import RoleNode, Workload
from projects.models.workloads import HAS_LABELS

LOOKUPS: dict[str, Any] = {
    "workload_labels": Workload.objects.filter(HAS_LABELS, labels__contains={"team": "nlp"}),
    "workload_array": Workload.objects.filter(array=uuid.uuid4()),
    "workload_code": Workload.objects.filter(code__in=[1, 2]),
    "workload_project_newest": Workload.objects.filter(project_id=1).order_by("-submitted_at"),
    "role_position_once": RoleNode.objects.filter(workload=uuid.uuid4()),
    "role_parent": RoleNode.objects.filter(parent__in=[1, 2]),
}


@pytest.mark.parametrize("index", LOOKUPS)
def test_lookup_uses_its_index(db: None, index: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
    rows: QuerySet[Any] = LOOKUPS[index].values("pk")
    assert index in rows.explain()
