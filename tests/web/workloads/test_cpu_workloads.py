"""Tests that pages of workloads without GPUs show CPUs and memory instead of zero GPUs."""

import re
from typing import Any

import pytest

from projects.models import Phase, Workload, WorkloadRole
from projects.services import arrays
from tests import factories as make
from tests.cast import Cast
from tests.web.conftest import SignIn
from tests.web.pools.test_reserved_gpus import text_of


def cpu_workload(cast: Cast, name: str, **columns: Any) -> Workload:
    workload = make.workload(cast.vision, name, gpus=0, by=cast.dave.user, pools=["local"], **columns)
    amounts = {"min": 2, "max": 2, "cpu_milli": 1500, "memory_mib": 2048}
    WorkloadRole.objects.create(workload=workload, position=0, name="worker", **amounts)
    return workload


@pytest.fixture
def running_on_cpus(cast: Cast) -> Workload:
    workload = cpu_workload(cast, "prepare", phase=Phase.RUNNING, run=1, started_at=make.ago(minutes=5))
    make.place(workload, make.node(cast.pool), [])
    return workload


@pytest.mark.heavy
def test_pages_show_cpus_and_memory_of_workloads_without_gpus(
    cast: Cast, running_on_cpus: Workload, sign_in: SignIn
) -> None:
    cpu_workload(cast, "queued", reason="WaitingForCapacity")
    client = sign_in("dave")
    for path in ("/workloads", f"/workloads/{running_on_cpus.pk}", "/queue", "/"):
        text = text_of(client, path)
        assert "3 cores, 4 GiB" in text, path
        assert not re.search(r"\b0 of 0\b|\b0 GPUs requested|\b0 requested", text), path
    assert "no GPU" in text_of(client, "/workloads")
    assert "workload, no GPU requested." in text_of(client, "/queue")


def test_tables_of_workloads_without_gpus_have_no_gpu_columns(
    cast: Cast, running_on_cpus: Workload, sign_in: SignIn
) -> None:
    client = sign_in("dave")
    page = client.get(f"/workloads/{running_on_cpus.pk}").content.decode()
    pods = page.partition('id="pods-title"')[2].partition("</thead>")[0]
    assert re.findall(r'<th scope="col"[^>]*>([^<]+)', pods) == ["Pod", "State", "Node", "Since"]
    assert "gpus" in dict(client.get("/workloads").context["columns"]), "the column shows the cores"
    WorkloadRole.objects.all().delete()
    assert "gpus" not in dict(client.get("/workloads").context["columns"])
    make.workload(cast.vision, "large", gpus=1)
    assert "gpus" in dict(client.get("/workloads").context["columns"])


def test_array_without_gpus_shows_the_cores_per_task(cast: Cast, sign_in: SignIn) -> None:
    document = {
        "name": "sweep", "project": "vision", "command": "x", "pools": [cast.pool.name],
        "array": {"tasks": 3}, "roles": [{"name": "worker", "cpu": 2, "memory_mib": 1024}],
    }  # fmt: skip
    arrays.submit(actor=cast.dave, document=document)
    client = sign_in("dave")
    assert "no GPU 2 cores, 1 GiB per task" in text_of(client, "/workloads")
    assert "0 per task" not in text_of(client, "/")


@pytest.mark.heavy
def test_requested_gpu_memory_is_shown_instead_of_a_gpu_count(cast: Cast, sign_in: SignIn) -> None:
    workload = make.workload(cast.vision, "shared", gpus=0, by=cast.dave.user, pools=["local"])
    role = WorkloadRole.objects.create(
        workload=workload, position=0, name="worker", min=1, max=1, gpu_devices=1, gpu_memory_mib=24 * 1024
    )
    client = sign_in("dave")
    for path in ("/workloads", f"/workloads/{workload.pk}", "/queue", "/"):
        text = text_of(client, path)
        assert "24 GiB GPU memory" in text and "no GPU 24" not in text, path
    role.delete()
    assert "no GPU" in text_of(client, f"/workloads/{workload.pk}")


def test_low_utilization_is_summarized_in_numbers_without_flat_charts(
    cast: Cast, running_on_cpus: Workload, sign_in: SignIn
) -> None:
    pod = running_on_cpus.pods.get()
    make.used(pod, cpu=2, memory=0)
    make.past_utilization(pod, make.ago(minutes=1), step=60, cpu=2, memory=1, gpus=0)
    client = sign_in("dave")

    def charts() -> int:
        page = client.get(f"/workloads/{running_on_cpus.pk}").content.decode()
        assert "0.002" in page and "&lt; 1 MiB" in page
        return page.count('class="spark"')

    assert charts() == 0
    make.past_utilization(pod, make.ago(minutes=2), step=60, cpu=900, memory=1, gpus=0)
    assert charts() == 1


def test_one_statement_loads_the_cores_of_all_rows(
    cast: Cast, sign_in: SignIn, django_assert_max_num_queries: Any
) -> None:
    client = sign_in("dave")
    cpu_workload(cast, "first")
    with django_assert_max_num_queries(100) as one:
        client.get("/workloads")
    for number in range(5):
        cpu_workload(cast, f"more-{number}")
    with django_assert_max_num_queries(len(one)):
        client.get("/workloads")
