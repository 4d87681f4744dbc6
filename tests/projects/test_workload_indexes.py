"""Tests that lookups of workloads use partial indexes."""

import uuid
from typing import Any

import pytest
from django.db import connection
from django.db.models import QuerySet

from projects.models import Workload, WorkloadRole
from projects.models.workloads import HAS_LABELS

LOOKUPS: dict[str, Any] = {
    "workload_labels": Workload.objects.filter(HAS_LABELS, labels__contains={"team": "nlp"}),
    "workload_array": Workload.objects.filter(array=uuid.uuid4()),
    "workload_code": Workload.objects.filter(code__in=[1, 2]),
    "workload_pool": Workload.objects.filter(pool__in=[1, 2]),
    "workload_first_started": Workload.objects.filter(first_started_at__gte="2026-01-01T00:00:00Z"),
    "workload_project_newest": Workload.objects.filter(project_id=1).order_by("-submitted_at"),
    "role_position_once": WorkloadRole.objects.filter(workload=uuid.uuid4()).order_by("position"),
}


@pytest.mark.parametrize("index", LOOKUPS)
def test_workload_lookup_uses_its_index(db: None, index: str) -> None:
    rows: QuerySet[Any] = LOOKUPS[index].values("pk")
    hide_table_behind_copy(rows.model._meta.db_table, index)
    plan = rows.explain()
    assert index in plan
    assert "Index Cond" in plan


def hide_table_behind_copy(table: str, index: str) -> None:
    """Hide a table behind an empty copy with a single index.

    The table itself has other indexes, and its statistics depend on earlier tests.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_get_indexdef(%s::regclass)", [index])
        definition = cursor.fetchone()[0].replace(f" ON public.{table} ", f" ON pg_temp.{table} ")
        cursor.execute(f"CREATE TEMPORARY TABLE {table} (LIKE public.{table}) ON COMMIT DROP")
        cursor.execute(definition)
        cursor.execute("SET LOCAL enable_seqscan = off")
