"""Tests for restarts by retry rules."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from berth.core.errors import Invalid
from pools.models import Node, NodePool
from pools.runtimes import capabilities
from pools.runtimes.base import PodCause
from projects.models import Event, Phase, Workload, WorkloadRole
from projects.services.arrays import submission as arrays
from projects.services.workloads import editing
from scheduler.loop.dispatch.lifecycle.limits import PULL_TIMEOUT, START_TIMEOUT
from scheduler.registries.base import RegistryError, RegistryErrorKind
from tests.harness.samples import sample
from tests.scheduler.crashes import CrashingScheduler
from tests.scheduler.stage import Stage
from tests.support.present import present

ONE = [{"name": "worker", "replicas": 1, "gpu": 1}]
IMAGE = "ghcr.io/org/train:1"


def running(stage: Stage, *rules: dict[str, Any], **changes: Any) -> Workload:
    workload = stage.submit(retry=list(rules), **{"roles": ONE, **changes})
    stage.tick(2)
    assert stage.phase(workload) == Phase.RUNNING
    return workload


def fail(stage: Stage, workload: Workload, **outcome: Any) -> str:
    """Fail the running pods of a workload. Return the workload's phase after the scheduler has noticed."""
    for pod in stage.pods(workload, "running"):
        stage.runtime.end(str(pod.pk), **outcome)
    stage.tick(2)
    return stage.phase(workload)


def restart(stage: Stage, workload: Workload) -> timedelta:
    """Wait for the end of the backoff, and return its duration."""
    assert workload.backoff_until is not None
    length = workload.backoff_until - stage.clock.now()
    stage.clock.advance(length.total_seconds())
    stage.tick(2)
    assert stage.phase(workload) == Phase.RUNNING
    return length


def test_retry_rule_applies_only_to_its_exit_codes(stage: Stage) -> None:
    workload = running(stage, {"on": [75, "SIGTERM"], "max": 3, "backoff": 100})
    waits = []
    for outcome in ({"exit_code": 75}, {"signal": 15}, {"exit_code": 143}):
        assert fail(stage, workload, **outcome) == Phase.PENDING
        waits.append(restart(stage, workload).total_seconds())
    assert waits == [100, 200, 400]
    assert (workload.restarts, workload.retries) == (3, {"75": 1, "SIGTERM": 1, "143": 1})
    assert fail(stage, workload, exit_code=75) == Phase.FAILED
    assert "No restart is left: the rule for exit code 75 allows 3 restarts." in workload.message


def test_failure_without_a_matching_rule_ends_the_workload(stage: Stage) -> None:
    workload = running(stage, {"on": [75]})
    assert fail(stage, workload, exit_code=1) == Phase.FAILED
    assert (workload.exit_code, workload.restarts, workload.retries) == (1, 0, {})


@pytest.mark.heavy
def test_first_matching_rule_applies(stage: Stage) -> None:
    workload = running(stage, {"on": [2], "action": "fail"}, {"on": ["pod_failed"]})
    assert fail(stage, workload, exit_code=1) == Phase.PENDING
    restart(stage, workload)
    assert fail(stage, workload, exit_code=2) == Phase.FAILED
    assert (
        workload.message
        == "Pod worker-0 ended with exit code 2. A retry rule ends the workload after exit code 2."
    )


@pytest.mark.parametrize(
    "changes",
    sample(
        [
            {"retry": [{"on": ["completed"], "max": 1}]},
            {"restart_policy": {"kind": "always", "max_restarts": 3}},
        ],
        1,
    ),
)
def test_retry_rule_can_restart_a_completed_run(stage: Stage, changes: dict[str, Any]) -> None:
    workload = stage.submit(roles=ONE, **changes)
    stage.tick(2)
    assert fail(stage, workload, exit_code=0) == Phase.PENDING
    assert (workload.run, workload.restarts, workload.retries) == (1, 1, {"completed": 1})
    restart(stage, workload)
    assert workload.run == 2


@pytest.mark.heavy
def test_backoff_is_at_most_an_hour(stage: Stage) -> None:
    workload = running(stage, {"on": [1], "backoff": "40m"})
    assert fail(stage, workload, exit_code=1) == Phase.PENDING
    assert restart(stage, workload) == timedelta(minutes=40)
    assert fail(stage, workload, exit_code=1) == Phase.PENDING
    assert restart(stage, workload) == timedelta(hours=1)


@pytest.mark.heavy
def test_timeline_states_the_failure_before_each_restart(stage: Stage) -> None:
    workload = running(stage, {"on": ["KILL"], "max": 2})
    assert fail(stage, workload, signal=9) == Phase.PENDING
    event = Event.objects.get(workload_id=workload.pk, kind="stopping")
    assert event.data["failure"] == "SIGKILL"
    assert (event.data["restart"], event.data["max_restarts"], event.data["run"]) == (1, 2, 1)
    assert event.message == "Pod worker-0 ended by signal 9. Restarting the gang: restart 1 of at most 2."


def test_restart_avoids_the_failed_node_and_states_the_reason(stage: Stage) -> None:
    workload = running(stage, {"on": [1], "other_node": True})
    first = stage.pods(workload)[0].node
    assert fail(stage, workload, exit_code=1) == Phase.PENDING
    restart(stage, workload)
    second = stage.pods(workload, "running")[0].node
    assert second != first
    assert fail(stage, workload, exit_code=1) == Phase.PENDING
    assert set(workload.avoided_nodes) == {first.name, second.name}
    stage.clock.advance(60)
    stage.tick(2)
    assert stage.phase(workload) == Phase.PENDING
    assert workload.message == "The pool adds 1 node for its pending workloads."
    capacity = present(workload.explanation)["blockers"][1]
    assert "4 GPUs free on nodes where the workload failed" in capacity["message"]
    third = stage.node(7)
    stage.tick(2)
    assert stage.pods(workload, "running")[0].node == third


@pytest.mark.heavy
def test_removing_the_retry_rule_makes_avoided_nodes_available_again(stage: Stage) -> None:
    Node.objects.exclude(name="local-0").delete()
    workload = running(stage, {"on": [1], "other_node": True})
    assert fail(stage, workload, exit_code=1) == Phase.PENDING
    stage.clock.advance(60)
    stage.tick(2)
    assert stage.phase(workload) == Phase.PENDING
    editing.edit(actor=stage.cast.alice, workload=workload, patch={"retry": None}, now=stage.clock.now())
    stage.tick(2)
    assert stage.phase(workload) == Phase.RUNNING


def grown(stage: Stage, workload: Workload) -> tuple[int, int, int]:
    """Return the role's memory in the document and in its row, and the memory limit of the last pod spec."""
    order = stage.runtime.order(str(stage.pods(workload, "running")[-1].pk))
    assert order is not None
    row = WorkloadRole.objects.get(workload=workload, name="worker")
    return workload.spec["roles"][0]["memory_mib"], row.memory_mib, order.memory_limit_mib


def test_memory_request_grows_with_each_restart_up_to_its_maximum(stage: Stage) -> None:
    NodePool.objects.update(runtime="local")
    rule = {"on": ["out_of_memory"], "memory_factor": 1.5, "memory_max_mib": 130}
    workload = running(stage, rule, roles=[{"name": "worker", "replicas": 1, "gpu": 1, "memory_mib": 64}])
    for expected in (96, 130):
        assert fail(stage, workload, signal=9, cause=PodCause.OUT_OF_MEMORY) == Phase.PENDING
        assert f"with {expected} MiB of memory for role worker" in Event.objects.filter(
            workload_id=workload.pk, kind="stopping").latest("at", "pk").message  # fmt: skip
        restart(stage, workload)
        assert grown(stage, workload) == (expected, expected, expected)
    assert workload.retries == {"out_of_memory": 2}
    assert fail(stage, workload, signal=9, cause=PodCause.OUT_OF_MEMORY) == Phase.FAILED
    assert "already has its maximum of 130 MiB" in workload.message
    assert workload.reason == "OutOfMemory"


@pytest.mark.heavy
def test_statement_count_does_not_depend_on_the_number_of_restarts(stage: Stage) -> None:
    NodePool.objects.update(runtime="local")
    rule = {"on": ["out_of_memory"], "memory_factor": 1.5, "memory_max_mib": 130, "other_node": True}
    roles = [{"name": "worker", "replicas": 1, "memory_mib": 16}]
    counts = []
    for number in (1, 6):
        started = [stage.submit(f"t{number}-{each}", retry=[rule], roles=roles) for each in range(number)]
        stage.tick(2)
        pods = [pod for workload in started for pod in stage.pods(workload, "running")]
        assert len(pods) == number
        for pod in pods:
            stage.runtime.end(str(pod.pk), signal=9, cause=PodCause.OUT_OF_MEMORY)
        with CaptureQueriesContext(connection) as queries:
            stage.loop.tick(reconcile=False)  # clean-up does as much as its time allows
        counts.append(len(queries))
        sizes = WorkloadRole.objects.filter(workload__in=started).values_list("memory_mib", flat=True)
        assert list(sizes) == [24] * number
    assert counts[1] <= counts[0]


@pytest.mark.heavy
def test_memory_growth_is_rejected_on_runtimes_that_do_not_limit_memory(stage: Stage) -> None:
    rule = {"on": ["out_of_memory"], "memory_factor": 2.0, "memory_max_mib": 128}
    roles = [{"name": "worker", "replicas": 1, "memory_mib": 64}]
    with pytest.raises(Invalid) as rejected:
        stage.submit(retry=[rule], roles=roles)
    (problem,) = rejected.value.problems
    assert problem.path == "retry[0].memory_factor"
    assert "its runtime does not limit memory" in problem.message


@pytest.mark.heavy
def test_lost_node_counts_as_a_restart_only_if_a_rule_lists_it(stage: Stage) -> None:
    ruled = running(stage, {"on": ["node_lost"], "max": 1, "backoff": 10})
    free = stage.submit("free", roles=ONE)
    stage.tick(2)
    for workload in (ruled, free):
        assert fail(stage, workload, cause=PodCause.LOST, message="gone") in (
            Phase.PENDING,
            Phase.STARTING,
            Phase.RUNNING,
        )
    assert (free.restarts, free.retries) == (0, {"node_lost": 1})
    assert stage.phase(ruled) == Phase.PENDING
    assert (ruled.restarts, ruled.retries) == (1, {"node_lost": 1})
    restart(stage, ruled)
    assert fail(stage, ruled, cause=PodCause.LOST, message="gone") == Phase.FAILED
    assert ruled.reason == "PodsLost"


@pytest.mark.heavy
def test_retry_rule_for_lost_nodes_can_fail_a_gang_below_its_minimum(stage: Stage) -> None:
    workload = running(stage, {"on": ["node_lost"], "action": "fail"}, roles=[{"replicas": 2, "gpu": 1}])
    stage.runtime.end(str(stage.pods(workload)[1].pk), cause=PodCause.LOST, message="gone")
    stage.tick(3)
    assert stage.phase(workload) == Phase.FAILED
    assert "A retry rule ends the workload after node_lost." in workload.message


@pytest.mark.heavy
def test_retry_rule_applies_to_a_run_that_exceeds_max_runtime(stage: Stage) -> None:
    workload = running(stage, {"on": ["timeout"], "max": 1}, max_runtime=60)
    stage.clock.advance(61)
    stage.tick(3)
    assert stage.phase(workload) == Phase.PENDING
    restart(stage, workload)
    stage.clock.advance(61)
    stage.tick(3)
    assert stage.phase(workload) == Phase.FAILED
    assert (workload.reason, workload.retries) == ("MaxRuntimeExceeded", {"timeout": 1})


@pytest.mark.heavy
def test_retry_rule_avoids_the_node_after_a_start_timeout(stage: Stage) -> None:
    stage.runtime.runs_immediately = False
    workload = stage.submit(retry=[{"on": ["start_timeout"], "other_node": True}], roles=ONE)
    stage.tick(2)
    node = stage.pods(workload)[0].node
    stage.clock.advance(START_TIMEOUT.total_seconds() + 1)
    stage.tick(3)
    assert (stage.phase(workload), workload.retries) == (Phase.PENDING, {"start_timeout": 1})
    assert workload.avoided_nodes == [node.name]


@pytest.mark.heavy
def test_retry_rule_limits_the_restarts_after_a_missing_image(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    able = capabilities.Capabilities(runs_images=True)
    monkeypatch.setattr(capabilities, "CAPABILITIES", {**capabilities.CAPABILITIES, "fake": able})
    missing = RegistryError(RegistryErrorKind.NOT_FOUND, "There is no such image.")
    stage.registries.digests[IMAGE] = missing
    workload = stage.submit(retry=[{"on": ["image_pull"], "max": 1}], image=IMAGE, roles=ONE)
    stage.tick(4)
    assert (stage.phase(workload), workload.retries) == (Phase.PENDING, {"image_pull": 1})
    stage.clock.advance(30)
    stage.tick(4)
    assert (stage.phase(workload), workload.reason) == (Phase.FAILED, "ImageNotFound")


@pytest.mark.heavy
def test_failed_image_pull_has_its_own_reason(stage: Stage) -> None:
    stage.runtime.runs_immediately = False
    workload = stage.submit(retry=[{"on": ["image_pull"], "other_node": True}], roles=ONE)
    stage.tick(2)
    pod = stage.pods(workload)[0]
    stage.runtime.end(str(pod.pk), cause=PodCause.IMAGE_PULL_FAILED, message="no space")
    stage.tick(2)
    assert (stage.phase(workload), workload.retries) == (Phase.PENDING, {"image_pull": 1})
    assert workload.avoided_nodes == [pod.node.name]
    assert stage.pods(workload)[0].stop_reason == "ImagePullFailed"


@pytest.mark.heavy
@pytest.mark.parametrize("pulls_image", [True, False])
def test_start_timeout_counts_as_a_failed_image_pull_only_during_a_pull(
    stage: Stage, pulls_image: bool
) -> None:
    stage.runtime.runs_immediately = False
    workload = stage.submit(retry=[{"on": ["image_pull", "start_timeout"]}], roles=ONE)
    stage.tick(2)
    (pod,) = stage.pods(workload)
    stage.runtime.report_progress(str(pod.pk), "pulling layer 1 of 2", pulls_image=pulls_image)
    stage.tick()
    stage.clock.advance(PULL_TIMEOUT.total_seconds() + 1)
    stage.tick(3)
    failure = "image_pull" if pulls_image else "start_timeout"
    assert (stage.phase(workload), workload.retries) == (Phase.PENDING, {failure: 1})


@pytest.mark.heavy
def test_first_failed_replica_selects_the_retry_rule(stage: Stage) -> None:
    workload = running(stage, {"on": [75]}, roles=[{"replicas": 2, "gpu": 1}])
    first, second = stage.pods(workload)
    stage.runtime.end(str(second.pk), exit_code=75)
    stage.clock.advance(1)
    stage.runtime.end(str(first.pk), signal=15)
    stage.tick(2)
    assert (stage.phase(workload), workload.retries) == (Phase.PENDING, {"75": 1})


@pytest.mark.parametrize(
    "point", sample(["reports.written", "reports.before_end", "reports.done", "dispatch.before_stop"], 1)
)
def test_failure_is_counted_only_once_if_the_scheduler_crashes_before_the_restart(
    stage: Stage, point: str
) -> None:
    life = CrashingScheduler(stage, point)
    workload = stage.submit(retry=[{"on": [75], "max": 1}], roles=[{"replicas": 2, "gpu": 1}])
    life.until(workload, Phase.RUNNING)
    first = stage.pods(workload)[0]
    stage.runtime.end(str(first.pk), exit_code=75)
    life.until(workload, Phase.PENDING)
    assert (workload.restarts, workload.retries) == (1, {"75": 1})
    life.until(workload, Phase.RUNNING)
    assert workload.run == 2
    stage.runtime.end(str(stage.pods(workload, "running")[0].pk), exit_code=75)
    life.until(workload, Phase.FAILED)
    assert (workload.restarts, workload.retries) == (1, {"75": 1})
    assert life.deaths


@pytest.mark.heavy
def test_restarts_are_counted_per_array_task(stage: Stage) -> None:
    document = {"name": "sweep", "project": "vision", "command": "true", "roles": ONE,
                "array": {"tasks": 2}, "retry": [{"on": [75], "max": 1}]}  # fmt: skip
    arrays.submit(actor=stage.cast.alice, document=document, now=stage.clock.now())
    stage.tick(3)
    first, second = Workload.objects.order_by("array_index")
    assert fail(stage, first, exit_code=75) == Phase.PENDING
    restart(stage, first)
    assert fail(stage, second, exit_code=75) == Phase.PENDING
    assert fail(stage, first, exit_code=75) == Phase.FAILED
    second.refresh_from_db()
    assert second.retries == {"75": 1}


@pytest.mark.parametrize(("minutes", "count"), [(29, 10), (30, 0)])
def test_failure_count_restarts_when_a_long_run_loses_its_pods(
    stage: Stage, minutes: int, count: int
) -> None:
    workload = running(stage, roles=[{"name": "worker", "replicas": 2, "gpu": 0, "cpu": 0.1}])
    Workload.objects.filter(pk=workload.pk).update(peer_failures=10)
    stage.clock.advance(minutes * 60)
    for pod in stage.pods(workload, "running"):
        stage.runtime.end(str(pod.pk), cause=PodCause.LOST)
    stage.tick(4)
    workload.refresh_from_db()
    assert (workload.run, workload.peer_failures) == (2, count)
