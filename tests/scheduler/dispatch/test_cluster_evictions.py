"""Tests for pods that are evicted by their cluster and reported to Berth."""

import pytest
from django.test import Client

from pools.models import Node
from pools.runtimes.base import PodCause
from projects.models import Event, Phase, Workload
from projects.services.workloads import control
from scheduler.loop.dispatch.lifecycle.verdict import PEER_FAILURES_MAX
from scheduler.models import Eviction
from tests.scheduler.stage import Stage

DRAINED = "the pod was evicted in Kubernetes, for example by `kubectl drain`"

REPLICA_0, REPLICA_1 = {"role": "worker", "index": 0}, {"role": "worker", "index": 1}


def running_gang(stage: Stage) -> Workload:
    workload = stage.submit(roles=[{"name": "worker", "replicas": 2, "gpu": 1}])
    stage.tick(2)
    assert stage.phase(workload) == Phase.RUNNING
    return workload


def evict(stage: Stage, workload: Workload, *indices: int) -> None:
    for pod in stage.pods(workload, "running", "stopping"):
        if pod.index in indices:
            stage.runtime.end(str(pod.pk), signal=15, cause=PodCause.EVICTED, message=DRAINED)


def test_pod_eviction_by_the_cluster_is_recorded_with_the_reason(stage: Stage) -> None:
    workload = running_gang(stage)
    node = stage.pods(workload)[0].node.name
    stage.clock.advance(60)
    evict(stage, workload, 0)
    stage.tick(2)
    record = Eviction.objects.get()
    assert (record.kind, record.workload_id, record.preemptor_name) == ("cluster", workload.pk, "")
    assert record.rule == f"Decided outside Berth: on {node}, {DRAINED}."
    assert record.pods == [{"role": "worker", "index": 0}]
    assert (record.entire_workload, record.gpu_milli, record.lost_gpu_seconds) == (False, 1000, 60)
    assert (workload.restarts, workload.preemptions) == (0, 0)


def test_workload_that_loses_all_pods_at_once_has_one_eviction_record(stage: Stage) -> None:
    workload = running_gang(stage)
    evict(stage, workload, 0, 1)
    stage.tick()
    record = Eviction.objects.get()
    assert (record.entire_workload, record.gpu_milli, len(record.pods)) == (True, 2000, 2)
    assert Event.objects.filter(workload_id=workload.pk, data__reason="PodsLost").exists()
    stage.tick(4)
    assert stage.phase(workload) == Phase.RUNNING
    assert Eviction.objects.count() == 1


@pytest.mark.heavy
def test_eviction_record_counts_all_pods_if_the_entire_workload_stops(stage: Stage) -> None:
    workload = running_gang(stage)
    node = stage.pods(workload)[0].node.name
    stage.clock.advance(60)
    evict(stage, workload, 0)
    # The program of the other replica fails because it has lost its peer.
    stage.runtime.end(str(stage.pods(workload, "running")[1].pk), exit_code=1)
    stage.tick()
    record = Eviction.objects.get()
    assert record.rule == f"Decided outside Berth: on {node}, {DRAINED}."
    assert (record.entire_workload, record.gpu_milli, record.lost_gpu_seconds) == (True, 2000, 120)
    assert record.pods == [{"role": "worker", "index": 0}, {"role": "worker", "index": 1}]


def fail(stage: Stage, workload: Workload, index: int) -> None:
    (pod,) = (pod for pod in stage.pods(workload, "running") if pod.index == index)
    stage.runtime.end(str(pod.pk), exit_code=1)
    stage.tick()


@pytest.mark.heavy
def test_second_eviction_record_counts_pods_that_fail_after_a_peer_is_evicted(stage: Stage) -> None:
    workload = running_gang(stage)
    node = stage.pods(workload)[0].node.name
    stage.clock.advance(60)
    evict(stage, workload, 0)
    stage.tick()
    assert stage.phase(workload) == Phase.RUNNING
    stage.clock.advance(30)
    fail(stage, workload, 1)
    later, first = Eviction.objects.all()
    assert (first.entire_workload, first.gpu_milli, first.pods) == (False, 1000, [REPLICA_0])
    assert (later.kind, later.entire_workload, later.gpu_milli) == ("cluster", True, 1000)
    assert (later.pods, later.lost_gpu_seconds) == ([REPLICA_1], 90)
    assert later.rule == (
        f"Decided outside Berth: on {node}, {DRAINED}. The other pods failed afterwards, or were stopped."
    )
    stage.tick(4)
    assert stage.phase(workload) == Phase.RUNNING
    workload.refresh_from_db()
    assert (Eviction.objects.count(), workload.restarts) == (2, 0)


@pytest.mark.heavy
def test_failed_replacement_of_an_evicted_pod_counts_as_a_failure(stage: Stage) -> None:
    workload = running_gang(stage)
    stage.clock.advance(60)
    evict(stage, workload, 0)
    stage.tick()
    stage.clock.advance(30)
    stage.tick(2)
    fail(stage, workload, 0)
    stage.tick(2)
    assert stage.phase(workload) == Phase.FAILED
    assert Eviction.objects.count() == 1


@pytest.mark.heavy
def test_late_failure_after_a_peer_eviction_counts_as_a_failure(stage: Stage) -> None:
    workload = running_gang(stage)
    evict(stage, workload, 0)
    stage.tick(3)
    stage.clock.advance(3600)
    fail(stage, workload, 1)
    stage.tick(2)
    assert stage.phase(workload) == Phase.FAILED
    assert Eviction.objects.count() == 1


@pytest.mark.heavy
def test_gang_that_fails_after_each_pod_eviction_is_restarted_a_limited_number_of_times(
    stage: Stage,
) -> None:
    workload, delays = running_gang(stage), []
    for _ in range(PEER_FAILURES_MAX):
        evict(stage, workload, 0)
        fail(stage, workload, 1)
        workload.refresh_from_db()
        until = workload.backoff_until
        delays.append((until - stage.clock.now()).total_seconds() if until else 0)
        stage.clock.advance(delays[-1])
        stage.tick(2)
        assert stage.phase(workload) == Phase.RUNNING
    assert delays[:4] == [0, 5, 10, 20]
    assert delays[-1] == 300

    evict(stage, workload, 0)
    fail(stage, workload, 1)
    client = Client()
    client.force_login(stage.cast.alice.user)
    shown = client.get(f"/api/v1/workloads/{workload.pk}").json()
    assert (shown["phase"], shown["exit_code"]) == ("failed", 1)
    assert shown["message"] == (
        "Pod worker-1 ended with exit code 1. 11 runs without progress ended because a pod failed after "
        "another was lost or stopped, so this is a failure."
    )


SLURM_PREEMPTED = "Slurm job 5 has ended on n1: Slurm preempted it"


@pytest.mark.parametrize("pod_ends_first", [False, True])
def test_eviction_by_slurm_is_recorded_with_its_reason(stage: Stage, pod_ends_first: bool) -> None:
    workload = running_gang(stage)
    pod = stage.pods(workload)[0]
    Node.objects.filter(pk=pod.node_id).update(eviction_reason=SLURM_PREEMPTED)
    if pod_ends_first:
        stage.runtime.end(str(pod.pk), cause=PodCause.LOST, message="gone")
    else:
        Node.objects.filter(pk=pod.node_id).update(state="lost")
    stage.tick()
    record = Eviction.objects.get()
    assert (record.kind, record.workload_id) == ("cluster", workload.pk)
    assert record.rule == f"Decided outside Berth: on {pod.node.name}, {SLURM_PREEMPTED}."


@pytest.mark.parametrize("cause", [PodCause.LOST, PodCause.STOPPED])
def test_pod_lost_with_its_node_does_not_count_as_evicted(stage: Stage, cause: PodCause) -> None:
    workload = running_gang(stage)
    stage.runtime.end(str(stage.pods(workload)[0].pk), cause=cause, message="gone")
    stage.tick(2)
    assert not Eviction.objects.exists()


@pytest.mark.heavy
def test_eviction_of_a_pod_that_berth_is_stopping_is_not_recorded(stage: Stage) -> None:
    workload = running_gang(stage)
    stage.runtime.stubborn.update(str(pod.pk) for pod in stage.pods(workload))
    control.cancel(actor=stage.cast.alice, workload=workload)
    stage.tick()
    evict(stage, workload, 0, 1)
    stage.tick(3)
    assert stage.phase(workload) == Phase.CANCELLED
    assert not Eviction.objects.exists()


def test_api_and_pages_show_evictions_by_the_cluster(stage: Stage) -> None:
    workload = running_gang(stage)
    evict(stage, workload, 1)
    stage.tick(2)
    client = Client()
    client.force_login(stage.cast.dave.user)
    (item,) = client.get("/api/v1/evictions?kind=cluster").json()["items"]
    assert item["summary"] == "vision/train-1 was evicted by its cluster (1 GPU, some of its pods)"
    assert item["explanation"][0].startswith("Rule: Decided outside Berth: on ")
    for path in ("/evictions", f"/evictions/{item['id']}", f"/workloads/{workload.pk}"):
        assert "Evicted by the cluster" in client.get(path).content.decode(), path
