"""Tests for the signal that pods receive before SIGTERM."""

import signal
from datetime import timedelta
from typing import Any

import pytest

from berth.core.errors import Invalid
from pools.models import Node, NodePool
from pools.providers.base import Interruption
from pools.services import interrupt_node
from projects.models import Event, Phase, Pod, Workload
from projects.services.workloads import control
from tests.harness.samples import sample
from tests.scheduler.crashes import CrashingScheduler
from tests.scheduler.stage import Stage

NOTICE = {"signal": "USR1", "lead": 300}
WHOLE = [{"name": "worker", "replicas": 4, "gpu": 1}]


def running(stage: Stage, name: str = "low", **changes: Any) -> Workload:
    workload = stage.submit(name, preemption=NOTICE, **{"roles": WHOLE, "priority": 10, **changes})
    stage.tick(2)
    assert stage.phase(workload) == Phase.RUNNING
    return workload


def notices(stage: Stage) -> list[tuple[str, int]]:
    return [what for call, what in stage.runtime.calls if call == "notice"]  # type: ignore[misc]


def signal_events(workload: Workload) -> list[Event]:
    return list(Event.objects.filter(workload_id=workload.pk, kind="preemption_signal"))


def test_evicted_gang_receives_the_signal_before_sigterm(stage: Stage) -> None:
    low = running(stage)
    pods = {str(pod.pk) for pod in stage.pods(low)}
    high = stage.submit("high", roles=WHOLE, priority=90)
    stage.tick(3)
    assert set(notices(stage)) == {(pod, signal.SIGUSR1) for pod in pods}
    assert (stage.phase(low), stage.phase(high)) == (Phase.STOPPING, Phase.RESERVED)
    (event,) = signal_events(low)
    assert event.message == "SIGUSR1 sent to 4 pods. SIGTERM follows after 300 s."
    assert {pod.signalled_at for pod in stage.pods(low)} == {stage.clock.now()}
    stage.clock.advance(301)
    stage.tick(3)
    assert (stage.phase(low), stage.phase(high)) == (Phase.PENDING, Phase.RUNNING)
    assert low.preemptions == 1
    assert len(signal_events(low)) == 1


@pytest.mark.heavy
def test_suspended_workload_receives_the_signal(stage: Stage) -> None:
    workload = running(stage)
    control.suspend(actor=stage.cast.alice, workload=workload, now=stage.clock.now())
    stage.tick(2)
    assert len(notices(stage)) == 4
    assert stage.phase(workload) == Phase.STOPPING
    control.cancel(actor=stage.cast.alice, workload=workload, now=stage.clock.now())
    stage.clock.advance(15)
    stage.tick(2)
    assert stage.phase(workload) == Phase.CANCELLED


@pytest.mark.parametrize("ending", sample(["cancelled", "failed"], 1))
def test_cancelled_and_failed_workloads_receive_no_signal(stage: Stage, ending: str) -> None:
    workload = running(stage)
    if ending == "cancelled":
        control.cancel(actor=stage.cast.alice, workload=workload, now=stage.clock.now())
    else:
        stage.runtime.end(str(stage.pods(workload)[0].pk), exit_code=1)
    stage.tick(3)
    assert stage.phase(workload) == ending
    assert (notices(stage), signal_events(workload)) == ([], [])


@pytest.mark.heavy
def test_only_the_scaled_down_replica_receives_the_signal(stage: Stage) -> None:
    roles = [{"name": "worker", "min": 1, "max": 4, "gpu": 1}]
    elastic = running(stage, "elastic", kind="elastic", roles=roles, priority=50)
    stage.tick(3)
    assert len(stage.pods(elastic, "running")) == 4
    stage.submit("high", roles=[{"name": "worker", "replicas": 2, "gpu": 1}], priority=90)
    stage.tick(3)
    assert len(notices(stage)) == 2
    assert stage.phase(elastic) == Phase.RUNNING
    assert signal_events(elastic)[0].data["pods"] == 2


@pytest.mark.heavy
def test_imminent_node_interruption_shortens_the_lead_time(stage: Stage) -> None:
    Node.objects.exclude(name="local-0").delete()
    roles = [{"name": "worker", "replicas": 1, "gpu": 1}]
    workload = running(stage, roles=roles, grace_period_seconds=20)
    now, node = stage.clock.now(), stage.pods(workload)[0].node
    interrupt_node(node, Interruption("EC2 reclaims it", now + timedelta(seconds=80)), at=now)
    stage.clock.advance(50)
    stage.tick(2)
    (event,) = signal_events(workload)
    assert event.data["lead_seconds"] == 10, "SIGTERM arrives 20 s before the interruption"


def test_preemption_notice_is_rejected_for_a_kubernetes_pool(stage: Stage) -> None:
    NodePool.objects.update(runtime="kubernetes")
    with pytest.raises(Invalid) as rejected:
        stage.submit(preemption=NOTICE, image="ghcr.io/org/train:1")
    (problem,) = rejected.value.problems
    assert problem.path == "preemption"
    assert "its runtime cannot send a signal before SIGTERM" in problem.message


@pytest.mark.parametrize("point", sample(["dispatch.stopped", "dispatch.noticed", "dispatch.before_stop"], 1))
def test_signal_is_recorded_only_once_despite_a_crash(stage: Stage, point: str) -> None:
    life = CrashingScheduler(stage, point)
    low = stage.submit("low", preemption=NOTICE, roles=WHOLE, priority=10)
    life.until(low, Phase.RUNNING)
    stage.submit("high", roles=WHOLE, priority=90)
    for _ in range(20):
        life.tick()
    assert life.deaths
    assert len(notices(stage)) == 4
    assert len(signal_events(low)) == 1
    assert not Pod.objects.filter(workload=low, signalled_at=None).exists()
