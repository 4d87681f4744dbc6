"""Tests for measured utilization over REST."""

from typing import Any

import pytest
from django.utils import timezone

from berth.client.models.usage import (
    ClusterUtilization,
    NodeUtilizationDetail,
    WorkloadUtilization,
    WorkloadUtilizationDetail,
)
from projects.models import Pod, Project
from scheduler.models import NodeUtilization
from tests import factories as make
from tests.api.conftest import Caller
from tests.cast import Cast


def create_running_pod(cast: Cast, project: Project, name: str, devices: list[int], **columns: Any) -> Pod:
    node = cast.pool.nodes.first() or make.node(cast.pool, devices=["GPU-0", "GPU-1"], gpu_memory_mib=80_000)
    work = make.workload(project, name, phase="running", run=1, started_at=make.ago(hours=2), **columns)
    return make.place(work, node, devices)


def test_workload_utilization_includes_pods_and_devices(cast: Cast, dave: Caller) -> None:
    pod = create_running_pod(cast, cast.vision, "train", [1])
    make.used(pod, 25, cpu=500, gpu_memory=None)
    make.past_utilization(pod, make.ago(minutes=2), gpus=1, busy=75, cpu=1500, gpu_memory=9000)
    make.past_utilization(pod, make.ago(minutes=200), cpu=100)
    path = f"workloads/{pod.workload_id}/utilization"
    utilization = WorkloadUtilizationDetail.model_validate(dave.get(path).json())
    assert (utilization.now.allocated.gpu, utilization.now.used.gpu, utilization.now.gpu_busy_percent) == (
        1,
        0.25,
        25,
    )
    assert (utilization.now.allocated.cpu, utilization.now.used.cpu) == (2, 0.5)
    assert (utilization.now.allocated.gpu_memory_mib, utilization.now.used.gpu_memory_mib) == (80_000, None)
    assert [(item.pod, item.devices[0].index, item.devices[0].busy_percent) for item in utilization.pods] == [
        ("worker-0", 1, 25.0)
    ]
    (point,) = utilization.over_time
    assert (utilization.step, point.used.gpu, point.allocated.gpu, point.used.cpu) == (60, 0.75, 1, 1.5)
    assert len(dave.get(path, span=4 * 3600).json()["over_time"]) == 2
    assert dave.get(path, span=4 * 3600, run=2).json()["over_time"] == []


@pytest.mark.heavy
def test_utilization_of_an_idle_workload_states_when_it_became_idle(cast: Cast, dave: Caller) -> None:
    since = make.ago(hours=3)
    pod = create_running_pod(cast, cast.vision, "train", [0])
    make.used(pod, 0, busy_at=since)
    utilization = WorkloadUtilizationDetail.model_validate(
        dave.get(f"workloads/{pod.workload_id}/utilization").json()
    )
    assert utilization.idle_since == since


def test_node_utilization_includes_all_gpus_and_pods(cast: Cast, dave: Caller) -> None:
    ours, theirs = (
        create_running_pod(cast, cast.vision, "ours", [0]),
        create_running_pod(cast, cast.ads, "theirs", []),
    )
    make.used(ours, 50)
    make.used(theirs, cpu=250)
    node = ours.node
    NodeUtilization.objects.create(node=node, at=timezone.now(), devices=[[500, 100], [30, None]])
    utilization = NodeUtilizationDetail.model_validate(dave.get(f"nodes/{node.name}/utilization").json())
    assert [(item.index, item.busy_percent, item.memory_mib) for item in utilization.devices] == [
        (0, 50.0, 100), (1, 3.0, None),
    ]  # fmt: skip
    assert (utilization.now.pods, utilization.now.used.cpu, utilization.now.used.gpu) == (2, 1.25, 0.5)
    assert dave.get("nodes/none/utilization").status_code == 404
    (listed,) = dave.get("utilization/nodes", pool=cast.pool.name).json()["items"]
    assert NodeUtilizationDetail.model_validate(listed).devices == utilization.devices
    assert dave.get("utilization/nodes", pool="none").status_code == 422


@pytest.mark.heavy
def test_cluster_utilization_is_reported_by_pool_and_hour(cast: Cast, dave: Caller) -> None:
    pod = create_running_pod(cast, cast.ads, "theirs", [0, 1])
    pod.allocation.bound_at = make.ago(hours=3)
    pod.allocation.save()
    make.used(pod, 100, 50)
    make.past_utilization(pod, make.ago(hours=1), step=3600, gpus=2, busy=75)
    utilization = ClusterUtilization.model_validate(dave.get("utilization", hours=2).json())
    assert (utilization.now.allocated.gpu, utilization.now.used.gpu, utilization.now.gpus_measured) == (
        2,
        1.5,
        2,
    )
    assert [(pool.pool, pool.gpus, pool.now.used.gpu) for pool in utilization.pools] == [("local", 2, 1.5)]
    before, now = utilization.hours
    assert (before.allocated, before.measured, before.used) == (2, 2, 1.5)
    assert (now.measured, now.used) == (0, 0)
    assert dave.get("utilization", pool="none").status_code == 422


def test_workload_utilization_is_listed_for_visible_projects(cast: Cast, dave: Caller, alice: Caller) -> None:
    make.used(create_running_pod(cast, cast.vision, "ours", []), cpu=250)
    make.used(create_running_pod(cast, cast.ads, "theirs", [0]), 10)
    (mine,) = [
        WorkloadUtilization.model_validate(item) for item in dave.get("utilization/workloads").json()["items"]
    ]
    assert (mine.workload, mine.now.used.cpu, mine.now.used.gpu) == ("vision/ours", 0.25, None)
    both = alice.get("utilization/workloads", limit=1).json()
    assert both["items"][0]["workload"] == "ads/theirs", "the largest allocation comes first"
    rest = alice.get("utilization/workloads", limit=1, cursor=both["next"]).json()
    assert [item["workload"] for item in rest["items"]] == ["vision/ours"]
    assert alice.get("utilization/workloads", project="search").json()["items"] == []


@pytest.mark.parametrize("span", ["0", "59", "-1", "x", "99999999999"])
def test_invalid_time_span_is_rejected(cast: Cast, dave: Caller, span: str) -> None:
    pod = create_running_pod(cast, cast.vision, "train", [])
    answer = dave.get(f"workloads/{pod.workload_id}/utilization", span=span)
    assert (answer.status_code, answer.json()["errors"][0]["path"]) == (422, "span")


@pytest.mark.heavy
def test_utilization_history_ends_when_the_workload_completes(cast: Cast, dave: Caller) -> None:
    pod = create_running_pod(cast, cast.vision, "train", [])
    make.past_utilization(pod, make.ago(hours=30), step=3600, cpu=700)
    work = pod.workload
    work.phase, work.ended_at = "completed", make.ago(hours=29)
    work.save()
    utilization = dave.get(f"workloads/{work.pk}/utilization", span=3 * 3600).json()
    assert (utilization["step"], [point["used"]["cpu"] for point in utilization["over_time"]]) == (
        3600,
        [0.7],
    )
