"""Tests for pagination and the number of queries per list."""

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from pools.models import Node, NodePool
from projects.models import Pod, Project, Quota, Workload
from projects.services import workloads
from scheduler.models import Eviction
from tests.api.conftest import Caller
from tests.cast import Cast, training
from tests.harness.samples import sample


def submit(cast: Cast, name: str, **changes: Any) -> Workload:
    return workloads.submit(actor=cast.dave, project=cast.vision, document=training(name, **changes))


@pytest.mark.parametrize(
    "sort", sample(["-submitted_at", "submitted_at", "name", "-priority", "phase", "gpus"], 2)
)
def test_pages_neither_skip_nor_repeat_rows_during_inserts(cast: Cast, dave: Caller, sort: str) -> None:
    before = {submit(cast, f"w{number}", priority=number % 3).name for number in range(12)}
    names: list[str] = []
    query: dict[str, Any] = {"limit": 5, "sort": sort}
    for number in range(9):
        answer = dave.get("workloads", **query).json()
        names += [item["name"] for item in answer["items"]]
        submit(cast, f"a{number}", priority=number % 3)
        submit(cast, f"z{number}", priority=number % 3)
        if answer["next"] is None:
            break
        query["cursor"] = answer["next"]
    assert len(names) == len(set(names))
    assert before <= set(names)


def test_cursor_is_valid_after_its_row_is_deleted(cast: Cast, dave: Caller) -> None:
    for number in range(4):
        submit(cast, f"w{number}")
    first = dave.get("workloads", limit=2, sort="name").json()
    Workload.objects.filter(name="w1").delete()
    second = dave.get("workloads", limit=2, sort="name", cursor=first["next"]).json()
    assert [item["name"] for item in second["items"]] == ["w2", "w3"]
    assert second["next"] is None


@pytest.mark.heavy
def test_cursor_is_rejected_for_a_different_sort_order(cast: Cast, dave: Caller) -> None:
    for number in range(3):
        submit(cast, f"w{number}")
    cursor = dave.get("workloads", limit=1, sort="name").json()["next"]
    assert dave.get("workloads", limit=1, cursor=cursor).status_code == 422
    assert dave.get("events", cursor=cursor).status_code == 422


def many_workloads(cast: Cast, count: int) -> None:
    node = Node.objects.create(
        pool=cast.pool, name=f"local-{count}", ordinal=count, state="ready", instance_id=f"i{count}",
        gpus=2, cpu_milli=8000, memory_mib=16384, since=timezone.now(),
    )  # fmt: skip
    for number in range(count):
        workload = submit(cast, f"w{count}-{number}")
        Pod.objects.create(workload=workload, role="worker", index=0, run=1, node=node, state="running")


def many_projects(cast: Cast, count: int) -> None:
    for number in range(count):
        project = Project.objects.create(department=cast.research, name=f"p{count}-{number}")
        Quota.objects.create(project=project, pool=cast.pool, gpu_milli=1000)


def many_nodes(cast: Cast, count: int) -> None:
    for number in range(count):
        pool = NodePool.objects.create(name=f"pool{count}-{number}", nodes_max=1)
        Node.objects.create(
            pool=pool, name=f"n{count}-{number}", ordinal=0, state="ready", instance_id="i", gpus=2,
            cpu_milli=8000, memory_mib=16384, since=timezone.now(),
        )  # fmt: skip


def many_evictions(cast: Cast, count: int) -> None:
    row = {
        "kind": "reclaim", "pool_id": cast.pool.pk, "pool_name": "local", "workload_name": "w",
        "project_id": cast.vision.pk, "project_name": "vision", "department_id": cast.research.pk,
        "department_name": "research", "rule": "A borrower gives back.",
    }  # fmt: skip
    Eviction.objects.bulk_create(Eviction(workload_id=uuid.uuid4(), **row) for _ in range(count))


LISTS: dict[str, tuple[str, Callable[[Cast, int], None]]] = {
    "workloads": ("workloads", many_workloads),
    "pods": ("pods", many_workloads),
    "events": ("events", many_workloads),
    "projects": ("projects", many_projects),
    "quotas": ("quotas", many_projects),
    "members": ("members", many_projects),
    "audit": ("audit", many_projects),
    "departments": ("departments", many_projects),
    "nodes": ("nodes", many_nodes),
    "node pools": ("node-pools", many_nodes),
    "evictions": ("evictions", many_evictions),
}


@pytest.mark.heavy
@pytest.mark.parametrize("name", sample(LISTS, 3))
def test_list_query_count_does_not_grow_with_rows(cast: Cast, bob: Caller, name: str) -> None:
    path, make = LISTS[name]
    bob.get(path)
    counts = []
    for rows in (10, 90):
        make(cast, rows)
        with CaptureQueriesContext(
            connection,
        ) as captured:
            assert bob.get(path, limit=500).status_code == 200
        counts.append(len(captured))
    assert counts[0] == counts[1] <= 10


@pytest.mark.heavy
def test_submission_query_count_does_not_grow_with_workloads(cast: Cast, dave: Caller) -> None:
    counts = []
    dave.get("whoami")  # the first use of a token writes a row
    for number in (5, 50):
        many_workloads(cast, number)
        with CaptureQueriesContext(connection) as captured:
            body = training(f"new-{number}", project="vision")
            assert dave.post("workloads", body, Idempotency_Key=f"k{number}").status_code == 201
        counts.append(len(captured))
    assert counts[0] == counts[1] <= 22
