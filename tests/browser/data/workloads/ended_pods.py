"""Browser test data: pods of ended workloads, which ran on a node that has been terminated since."""

from datetime import timedelta
from typing import Any

from pools.models import Node
from projects.models import Pod, PodState, Workload
from scheduler.models import Allocation
from tests import factories as make
from tests.support.present import present

ENDED = ("vit-baseline", "vit-large-lr3", "ranker-test", "tts-smoke")


def create_ended_pods(scene: Any) -> None:
    """Create two pods for each ended workload. The first failed pod of a failed workload is worker-1."""
    node = Node.objects.get(pool=scene.pools["train"], state="ended")
    Pod.objects.bulk_create(
        _ended_pod(scene.workloads[name], node, index) for name in ENDED for index in range(2)
    )


def create_ended_allocations(scene: Any) -> None:
    """Create the allocations of the failed and the evicted workload, whose pages show GPU-hours and cost.

    The allocations of other ended workloads are part of the usage history.
    """
    _create_evicted_pods(scene)
    for pod in scene.workloads["vit-large-lr3"].pods.all():
        Allocation.objects.create(
            pod=pod, node=pod.node, devices=[pod.index], gpu_milli=1000, cpu_milli=2000, memory_mib=4096,
            bound_at=pod.started_at, released_at=pod.ended_at,
        )  # fmt: skip


def create_ended_events(scene: Any) -> None:
    for name in ENDED:
        workload = scene.workloads[name]
        person = workload.submitted_by.username
        make.event(workload, "submitted", f"Submitted by {person}.", at=workload.submitted_at, actor=person)
        if name == "vit-baseline":  # the run that was evicted
            make.event(workload, "running", "All pods run.", at=make.ago(hours=3.8))
            make.event(workload, "pending", "Requeued after 1 eviction.", at=make.ago(hours=3.59))
        started = present(workload.started_at)
        placed = "Placed on 2 devices of train."
        make.event(workload, "starting", placed, at=started - timedelta(seconds=1))
        make.event(workload, "running", "All pods run.", at=started)
        actor = person if workload.phase == "cancelled" else "scheduler"
        make.event(workload, workload.phase, workload.message, at=workload.ended_at, actor=actor)


def _create_evicted_pods(scene: Any) -> None:
    """Create the pods of the evicted workload's run, with their allocations."""
    workload, node = scene.workloads["detr-long"], Node.objects.get(name="train-2")
    ended = present(workload.since)  # the pods stopped a minute after the eviction
    for index in range(4):
        pod = Pod.objects.create(
            workload=workload, role="worker", index=index, rank=index, run=workload.run, node=node,
            state=PodState.STOPPED, stop_reason="Reclaimed", started_at=workload.started_at,
            ended_at=ended, since=ended,
        )  # fmt: skip
        Allocation.objects.create(
            pod=pod, node=node, devices=[index], gpu_milli=1000, cpu_milli=2000, memory_mib=4096,
            bound_at=workload.started_at, released_at=ended,
        )  # fmt: skip


def _ended_pod(workload: Workload, node: Node, index: int) -> Pod:
    failed = workload.phase == "failed"
    ended = present(workload.ended_at) + timedelta(seconds=1 - index if failed else 0)
    return Pod(
        workload=workload, role="worker", index=index, rank=index, run=workload.run, node=node,
        state=PodState.FAILED if failed else PodState.SUCCEEDED, exit_code=int(failed),
        started_at=workload.started_at, created_at=present(workload.started_at), ended_at=ended, since=ended,
    )  # fmt: skip
