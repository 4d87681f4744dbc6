"""Tests for the end of a run: failures, restarts, time limits and lost machines."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pools.models import Node
from pools.providers.base import Interruption
from pools.runtimes.base import PodCause, RuntimeFailure
from pools.runtimes.enclosure.levels import pod_uid
from pools.runtimes.ray.cluster import RayNode
from pools.runtimes.ray.runtime import RayRuntime
from pools.services import drain_node, interrupt_node, terminate_node
from projects.models import Phase, PodState, Workload
from projects.services.workloads import control
from scheduler.loop.dispatch.reports import record_reports
from scheduler.models import DeviceClaim, Eviction
from scheduler.reports.explanations.workload import explain
from tests.scheduler.stage import Stage
from tests.support.present import present

ONE = [{"name": "worker", "replicas": 1, "gpu": 1}]


def running(stage: Stage, name: str = "train-1", **changes: Any) -> Workload:
    workload = stage.submit(name, **changes)
    stage.tick(2)
    assert stage.phase(workload) == Phase.RUNNING
    return workload


def test_failed_pod_ends_the_gang_with_its_exit_code(stage: Stage) -> None:
    workload = running(stage)
    stage.runtime.end(str(stage.pods(workload)[0].pk), exit_code=7, message="")
    stage.tick(3)
    assert stage.phase(workload) == Phase.FAILED
    assert (workload.exit_code, workload.reason) == (7, "PodFailed")
    assert {pod.state for pod in stage.pods(workload)} == {"failed", "stopped"}
    assert workload.gpu_milli_now == 0


def test_failure_reason_names_a_pod_killed_at_its_memory_limit(stage: Stage) -> None:
    role = [{"name": "worker", "replicas": 1, "gpu": 1, "limit": {"cpu": 1.5, "memory_mib": 64}}]
    workload = running(stage, roles=role)
    (pod,) = stage.pods(workload)
    order = stage.runtime.order(str(pod.pk))
    assert (order.cpu_limit_milli, order.memory_limit_mib) == (1500, 64)
    assert (order.project, order.uid) == ("vision", pod_uid(workload.project_id))
    text = "killed at its memory limit: limit 64 MiB, peak 64 MiB"
    assert order.optional_limits == ()
    stage.runtime.end(str(pod.pk), signal=9, cause=PodCause.OUT_OF_MEMORY, message=text, memory_peak_mib=64)
    stage.tick(3)
    assert stage.phase(workload) == Phase.FAILED
    assert (workload.reason, workload.exit_code) == ("OutOfMemory", 137)
    assert stage.pods(workload)[0].memory_peak_mib == 64
    assert workload.message == f"Pod worker-0 ended by signal 9: {text}."
    assert stage.pods(workload)[0].stop_reason == "OutOfMemory"


def test_failed_gang_restarts_at_another_address_up_to_its_restart_limit(stage: Stage) -> None:
    workload = running(stage, restart_policy={"kind": "on_failure", "max_restarts": 1})
    first_rendezvous = workload.rendezvous
    stage.finish(workload, exit_code=1)
    stage.tick(2)
    assert stage.phase(workload) == Phase.PENDING
    assert (workload.restarts, workload.preemptions) == (1, 0)
    stage.clock.advance(30)
    stage.tick(2)
    assert stage.phase(workload) == Phase.RUNNING
    assert workload.run == 2
    assert workload.rendezvous != first_rendezvous
    stage.finish(workload, exit_code=1)
    stage.tick(2)
    assert stage.phase(workload) == Phase.FAILED


def test_command_that_cannot_be_started_is_reported(stage: Stage) -> None:
    workload = stage.submit(roles=ONE)
    stage.runtime.runs_immediately = False
    stage.tick()
    pod = stage.pods(workload)[0]
    stage.runtime.end(str(pod.pk), cause=PodCause.START_FAILED, message="no such program")
    stage.tick(2)
    assert stage.phase(workload) == Phase.FAILED
    assert "no such program" in workload.message


def test_pods_lost_with_their_host_do_not_count_as_failures(stage: Stage) -> None:
    workload = running(stage)
    for pod in stage.pods(workload):
        stage.runtime.end(str(pod.pk), signal=15, cause=PodCause.HOST_STOPPED, message="the host was stopped")
    stage.tick(3)
    assert stage.phase(workload) in (Phase.STARTING, Phase.RUNNING)
    assert (workload.run, workload.restarts, workload.preemptions) == (2, 0, 0)


@pytest.mark.heavy
def test_stale_gang_is_stopped_after_its_grace_period(stage: Stage) -> None:
    workload = running(stage, roles=[{"name": "worker", "replicas": 4, "gpu": 1}])
    node = Node.objects.get(name="local-1")
    terminate_node(actor=stage.cast.alice, node=node)
    stage.tick()
    assert stage.phase(workload) == Phase.RUNNING
    assert workload.stale_since == stage.clock.now()
    stage.clock.advance(61)
    stage.tick(3)
    assert stage.phase(workload) == Phase.PENDING
    assert Eviction.objects.get().kind == "stale_gang"


@pytest.mark.heavy
def test_gang_keeps_running_after_a_lost_pod_is_replaced(stage: Stage) -> None:
    workload = running(stage)
    stage.runtime.end(str(stage.pods(workload)[1].pk), cause=PodCause.LOST, message="killed")
    stage.tick()
    states = sorted((pod.rank, pod.state) for pod in stage.pods(workload))
    assert states == [(0, "running"), (1, "lost"), (1, "starting")], "the replacement inherits the rank"
    stage.tick(2)
    assert stage.phase(workload) == Phase.RUNNING
    assert workload.stale_since is None
    assert len(stage.pods(workload, "running")) == 2


def test_run_that_exceeds_max_runtime_fails_with_the_reason(stage: Stage) -> None:
    workload = running(stage, max_runtime=60)
    stage.clock.advance(30)
    stage.tick()
    assert stage.phase(workload) == Phase.RUNNING
    stage.clock.advance(31)
    stage.tick(3)
    assert stage.phase(workload) == Phase.FAILED
    assert workload.reason == "MaxRuntimeExceeded"
    assert "ran longer than its maximum runtime of 1m." in workload.message


@pytest.mark.heavy
def test_gang_that_cannot_start_releases_its_devices(stage: Stage) -> None:
    stage.runtime.next("start", *[RuntimeFailure("no space left on device")] * 500)
    workload = stage.submit()
    stage.tick()
    assert stage.phase(workload) == Phase.STARTING
    stage.tick(6, seconds=100)
    assert stage.phase(workload) == Phase.FAILED
    assert workload.reason == "StartTimeout"
    assert not DeviceClaim.objects.exists()


@pytest.mark.heavy
def test_gang_that_never_reached_its_node_fails_with_the_reason(stage: Stage, tmp_path: Path) -> None:
    # The test uses a real Ray runtime and an unreachable node.
    node = Node.objects.get(name="local-0")
    away = RayNode(node.instance_id, node.pool.name, 0, "127.98.1.2", (), "5ec2e7" * 10)
    stage.runtime = RayRuntime(tmp_path, lambda: [away])  # type: ignore[assignment]
    Node.objects.exclude(pk=node.pk).delete()
    cancelled = stage.submit("cancelled", roles=ONE)
    stage.tick()
    control.cancel(actor=stage.cast.alice, workload=cancelled, now=stage.clock.now())
    stage.tick(3)
    assert stage.phase(cancelled) == Phase.CANCELLED
    workload = stage.submit(roles=ONE)
    stage.tick()
    reason = "could not be started yet: the node at http://127.98.1.2:8365 is not responding"
    assert reason in stage.pods(workload)[0].message
    assert stage.phase(workload) == Phase.STARTING
    stage.clock.advance(301)
    stage.tick(3)
    assert stage.phase(workload) == Phase.FAILED
    start = f"The pods did not start within 300 s: pod worker-0 on local-0 {reason}"
    assert workload.message.startswith(start)
    assert not DeviceClaim.objects.exists()


@pytest.mark.heavy
def test_start_failure_reason_is_cleared_once_the_pod_runs(stage: Stage) -> None:
    stage.runtime.next("start", RuntimeFailure("no space left on device"))
    workload = stage.submit(roles=ONE)
    stage.tick()
    assert "no space left on device" in stage.pods(workload)[0].message
    stage.tick(2, seconds=15)
    assert stage.phase(workload) == Phase.RUNNING
    assert stage.pods(workload)[0].message == ""


def test_deadline_ends_pending_and_running_workloads(stage: Stage) -> None:
    deadline = (stage.clock.now() + timedelta(seconds=60)).isoformat()
    runs = running(stage, roles=[{"name": "worker", "replicas": 4, "gpu": 1}], deadline=deadline)
    waits = stage.submit("waits", deadline=deadline)
    stage.tick()
    stage.clock.advance(60)
    stage.tick(3)
    assert [stage.phase(row) for row in (runs, waits)] == [Phase.FAILED, Phase.FAILED]
    assert {runs.reason, waits.reason} == {"DeadlineExceeded"}


@pytest.mark.heavy
def test_idle_session_ends_but_an_active_session_does_not(stage: Stage) -> None:
    idle = running(stage, "idle", kind="interactive", roles=ONE, idle_timeout=60)
    busy = running(stage, "busy", kind="interactive", roles=ONE, idle_timeout=60)
    for _ in range(8):
        stage.runtime.write(str(stage.pods(busy)[0].pk), b"still here\n")
        stage.tick(seconds=10)
    stage.tick(2)
    assert stage.phase(idle) == Phase.COMPLETED
    assert idle.reason == "IdleTimeout"
    assert stage.phase(busy) == Phase.RUNNING


def test_drain_timeout_evicts_workloads_from_the_node(stage: Stage) -> None:
    workload = running(stage, roles=ONE)
    node = stage.pods(workload)[0].node
    drain_node(actor=stage.cast.alice, node=node, reason="new disks")
    Node.objects.filter(pk=node.pk).update(drain_started_at=stage.clock.now())
    stage.tick(2)
    assert [pod.node_id for pod in stage.pods(workload, "running")] == [node.pk]
    stage.clock.advance(node.pool.drain_timeout + 1)
    stage.tick(3)
    assert Eviction.objects.get().kind == "drain"
    assert stage.phase(workload) in (Phase.STARTING, Phase.RUNNING)
    assert {pod.node_id for pod in stage.pods(workload, "starting", "running")} != {node.pk}
    node.refresh_from_db()
    assert node.emptied_at is not None


@pytest.mark.heavy
@pytest.mark.shows("SKY-67")
def test_draining_node_lets_non_preemptible_workloads_finish(stage: Stage) -> None:
    workload = running(stage, roles=ONE, preemptible=False)
    node = stage.pods(workload)[0].node
    drain_node(actor=stage.cast.alice, node=node, reason="new disks")
    Node.objects.filter(pk=node.pk).update(drain_started_at=stage.clock.now())
    stage.clock.advance(node.pool.drain_timeout * 10)
    stage.tick(3)
    assert not Eviction.objects.exists()
    assert [pod.node_id for pod in stage.pods(workload, "running")] == [node.pk]


def test_spot_interruption_evicts_even_non_preemptible_workloads(stage: Stage) -> None:
    workload = running(stage, roles=ONE, preemptible=False)
    node = stage.pods(workload)[0].node
    now = stage.clock.now()
    interrupt_node(node, Interruption("EC2 reclaims it", now + timedelta(seconds=120)), at=now)
    stage.clock.advance(58)
    stage.tick(2)
    assert [pod.node_id for pod in stage.pods(workload, "running")] == [node.pk]
    stage.clock.advance(2)
    stage.tick(3)
    eviction = Eviction.objects.get()
    assert eviction.rule == f"The drain timeout of node {node.name} has passed: EC2 reclaims it."
    assert {pod.node_id for pod in stage.pods(workload, "starting", "running")} != {node.pk}


def test_suspended_workload_keeps_its_queue_position_and_resumes(stage: Stage) -> None:
    workload = running(stage)
    control.suspend(actor=stage.cast.alice, workload=workload)
    stage.tick(2)
    assert stage.phase(workload) == Phase.SUSPENDED
    assert stage.runtime.running() == ()
    stage.tick()
    assert stage.phase(workload) == Phase.SUSPENDED
    control.resume(actor=stage.cast.alice, workload=workload)
    stage.tick(2)
    assert stage.phase(workload) == Phase.RUNNING
    assert workload.run == 2


def test_broken_runtime_does_not_block_other_pools(stage: Stage) -> None:
    stage.runtime.next("start", RuntimeFailure("disk full"), RuntimeFailure("disk full"))
    workload = stage.submit()
    stage.tick()
    assert stage.phase(workload) == Phase.STARTING
    stage.tick(2)
    assert stage.phase(workload) == Phase.RUNNING
    stage.runtime.next("look", RuntimeFailure("no answer"))
    other = stage.submit("other")
    stage.tick()
    assert stage.phase(other) == Phase.STARTING


@pytest.mark.heavy
def test_dependent_workload_starts_after_its_dependency_has_completed(stage: Stage) -> None:
    first = running(stage, "first", roles=ONE)
    second = stage.submit("second", roles=ONE, after=[{"workload": "first"}])
    third = stage.submit("third", roles=ONE, after=[{"workload": "nobody"}])
    stage.tick(2)
    assert stage.phase(second) == Phase.PENDING
    assert second.reason == "DependencyNotMet"
    stage.finish(first)
    stage.tick(2)
    assert stage.phase(second) in (Phase.STARTING, Phase.RUNNING)
    assert stage.phase(third) == Phase.PENDING
    assert third.reason == "DependencyNotMet"


@pytest.mark.heavy
def test_missing_dependency_is_reported_until_it_is_submitted(stage: Stage) -> None:
    waits = stage.submit("second", roles=ONE, after=[{"workload": "first"}])
    stage.tick()
    waits.refresh_from_db()
    assert waits.reason == "DependencyNotMet"
    assert waits.message == "Waiting for vision/first to complete (not submitted)."
    (blocker,) = explain(actor=stage.cast.dave, workload=waits).blockers
    assert blocker["message"] == waits.message
    running(stage, "first", roles=ONE)
    stage.tick()
    waits.refresh_from_db()
    assert waits.message == "Waiting for vision/first to complete (running)."


def test_stray_and_ended_pods_are_removed_from_the_runtime(stage: Stage) -> None:
    workload = running(stage, roles=ONE)
    stray = "11111111-2222-4333-8444-555555555555"
    order = stage.runtime.order(str(stage.pods(workload)[0].pk))
    stage.runtime.start(replace(order, pod_id=stray))
    stage.finish(workload)
    stage.tick(2)
    stage.clock.advance(61)
    stage.tick()
    assert stray not in stage.runtime.running()
    stage.clock.advance(61)
    stage.tick()
    assert stage.runtime.list_pods() == ()


def test_pod_of_a_lost_node_is_stopped_before_its_devices_are_reused(stage: Stage) -> None:
    workload = running(stage, roles=ONE)
    pod = stage.pods(workload)[0]
    terminate_node(actor=stage.cast.alice, node=pod.node)
    stage.tick()
    pod.refresh_from_db()
    assert pod.state == "lost"
    assert str(pod.pk) not in stage.runtime.running()


def test_running_pod_recorded_as_ended_is_stopped(stage: Stage) -> None:
    workload = running(stage, roles=ONE)
    pod = stage.pods(workload)[0]
    stage.runtime.next("stop", RuntimeFailure("the disk is full"))
    terminate_node(actor=stage.cast.alice, node=pod.node)
    stage.tick()
    assert str(pod.pk) in stage.runtime.running()
    stage.clock.advance(120)
    stage.tick()
    assert str(pod.pk) not in stage.runtime.running()


@pytest.mark.heavy
def test_run_without_a_rendezvous_address_is_assigned_one_before_it_starts(stage: Stage) -> None:
    workload = stage.submit()
    stage.loop.tick(reconcile=False)
    Workload.objects.filter(pk=workload.pk).update(rendezvous=None)
    stage.loop = stage.new_loop()
    stage.runtime.lose_all_pods()
    stage.tick()
    orders = [stage.runtime.order(str(pod.pk)) for pod in stage.pods(workload)]
    met = {(order.env["MASTER_ADDR"], order.env["MASTER_PORT"]) for order in orders}
    workload.refresh_from_db()
    rendezvous = present(workload.rendezvous)
    assert met == {(rendezvous["address"], str(rendezvous["port"]))}


def test_start_of_a_run_that_ends_between_two_ticks_is_recorded(stage: Stage) -> None:
    stage.runtime.runs_immediately = False
    workload = stage.submit("short", roles=ONE)
    stage.tick()
    (pod,) = stage.pods(workload)
    stage.clock.advance(5)
    started_at = stage.clock.now()
    stage.runtime.run(str(pod.pk))
    stage.runtime.end(str(pod.pk), exit_code=3)
    stage.tick(2)
    assert stage.phase(workload) == Phase.FAILED
    assert (workload.started_at, workload.first_started_at) == (started_at, started_at)


def test_grace_period_begins_if_a_gang_starts_and_becomes_stale_in_one_evaluation(stage: Stage) -> None:
    stage.runtime.runs_immediately = False
    groups = [
        {"name": "actors", "roles": [{"name": "actor", "replicas": 1, "gpu": 1}]},
        {"name": "learners", "roles": [{"name": "learner", "replicas": 2, "gpu": 1}]},
    ]
    workload = stage.submit("grouped", roles=None, need=1, groups=groups)
    stage.tick()
    pods = {(pod.role, pod.index): pod for pod in stage.pods(workload)}
    lost_pod = pods.pop(("learner", 1))
    lost_pod.state, lost_pod.ended_at = PodState.LOST, stage.clock.now()
    lost_pod.save()
    for pod in pods.values():
        stage.runtime.run(str(pod.pk))
    now = stage.clock.now()
    record_reports(now, stage.loop.context)
    assert stage.phase(workload) == Phase.RUNNING
    assert workload.stale_since == now
