"""Tests for pod limits: defaults of the pool, warnings and full workspaces."""

from pools.models import NodePool
from pools.runtimes.base import PodCause
from projects.models import Event, Phase
from tests.scheduler.dispatch.test_workload_endings import ONE, running
from tests.scheduler.stage import Stage


def test_warning_about_a_running_pod_creates_one_workload_event(stage: Stage) -> None:
    workload = running(stage)
    (pod, *_) = stage.pods(workload)
    text = "1 process was killed at the memory limit: limit 64 MiB, peak 64 MiB"
    for _ in range(2):
        stage.runtime.warn(str(pod.pk), text)
        stage.tick(2)
    events = Event.objects.filter(workload_id=workload.pk, kind="pod_warning")
    assert [event.message for event in events] == [f"Pod worker-0: {text}."] * 2, "one for each warning"
    (changed, *_) = stage.pods(workload)
    assert (changed.message, changed.warnings) == (text, 2)
    assert (changed.state, changed.since) == ("running", pod.since)
    assert stage.phase(workload) == Phase.RUNNING


def test_workload_with_a_full_workspace_fails_with_the_reason(stage: Stage) -> None:
    NodePool.objects.update(workspace_limit_mib=20)
    workload = running(stage, roles=ONE)
    (pod,) = stage.pods(workload)
    order = stage.runtime.order(str(pod.pk))
    assert order.workspace_limit_mib == 20
    text = "the workspace is full: limit 20 MiB, used 21 MiB"
    stage.runtime.end(str(pod.pk), exit_code=0, cause=PodCause.WORKSPACE_FULL, message=text)
    stage.tick(3)
    assert stage.phase(workload) == Phase.FAILED
    assert (workload.reason, workload.exit_code) == ("WorkspaceFull", 1)
    assert workload.message == f"Pod worker-0 ended with exit code 0: {text}."
    assert stage.pods(workload)[0].stop_reason == "WorkspaceFull"


def test_default_limits_of_the_pool_are_stored_with_a_placed_pod(stage: Stage) -> None:
    defaults = {"memory_mib": 4096, "cpu": 2}
    NodePool.objects.update(default_limits=defaults)
    role = [{"name": "worker", "replicas": 1, "gpu": 1, "memory_mib": 512}]
    workload = stage.submit("train-1", roles=role)
    stage.tick(1)
    NodePool.objects.update(default_limits={})
    stage.tick(1)
    (pod,) = stage.pods(workload)
    assert pod.limits == {
        "memory_mib": 512, "memory_source": "request", "cpu_milli": 2000, "cpu_source": "pool",
    }  # fmt: skip
    order = stage.runtime.order(str(pod.pk))
    assert (order.cpu_limit_milli, order.memory_limit_mib) == (2000, 512)
    assert order.optional_limits == ("memory", "cpu"), "a node without control groups still runs the pod"
