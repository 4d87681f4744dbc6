"""Tests for the image digests of runs, and for the workload status while an image is resolved or pulled."""

from datetime import timedelta
from typing import Any

import pytest

from pools.runtimes.base import PodSpec
from pools.services.secrets import SecretContent
from projects.models import Phase, RunImage, Workload
from projects.services.secrets import set_project_secret
from projects.services.workloads import control
from scheduler.registries.base import RegistryError, RegistryErrorKind
from tests.harness.samples import sample
from tests.scheduler.stage import Stage
from tests.support.crashes import killed_at

pytestmark = pytest.mark.usefixtures("runs_images")

IMAGE = "ghcr.io/org/train:1"
FIRST, SECOND = (f"sha256:{digit * 64}" for digit in "12")
GANG = [{"name": "worker", "replicas": 2, "gpu": 1}]


def orders(stage: Stage, workload: Workload) -> list[PodSpec]:
    pods = [str(pod.pk) for pod in stage.pods(workload) if pod.run == workload.run]
    return [stage.runtime.order(pod_id) for pod_id in pods if stage.runtime.was_started(pod_id)]


def started(stage: Stage, name: str = "train-1", **changes: Any) -> Workload:
    stage.registries.digests.setdefault(IMAGE, FIRST)
    workload = stage.submit(name, image=IMAGE, **changes)
    stage.tick(3)
    assert stage.phase(workload) == Phase.RUNNING
    return workload


def failure(fault: RegistryErrorKind) -> RegistryError:
    return RegistryError(fault, f"{fault} happened.")


def test_gang_starts_with_the_image_digest_once_the_tag_is_resolved(stage: Stage) -> None:
    workload = stage.submit(image=IMAGE, image_pull_policy="always", roles=GANG)
    other = stage.submit("other", roles=[{"name": "worker", "replicas": 1, "gpu": 1}])
    stage.tick(2)
    assert (stage.phase(workload), orders(stage, workload)) == (Phase.STARTING, [])
    assert workload.message == f"Looking up the digest of {IMAGE}."
    assert stage.phase(other) == Phase.RUNNING, "a registry that hangs delays no other workload"
    stage.registries.digests[IMAGE] = FIRST
    stage.tick(2)
    assert stage.phase(workload) == Phase.RUNNING
    expected = (f"ghcr.io/org/train@{FIRST}", "always", "")
    assert [(o.image, o.image_pull_policy, o.registry_auth) for o in orders(stage, workload)] == [
        expected
    ] * 2
    row = RunImage.objects.get()
    assert (row.workload, row.run, row.image, row.digest) == (workload, 1, IMAGE, FIRST)
    assert stage.registries.requests == [(IMAGE, "")]


def test_all_pods_of_a_run_use_the_same_image_digest(stage: Stage) -> None:
    roles = [{"name": "worker", "min": 1, "max": 2, "gpu": 1}]
    workload = started(stage, roles=roles, kind="elastic", restart_policy={"kind": "on_failure"})
    assert len(orders(stage, workload)) == 2
    stage.registries.digests[IMAGE] = SECOND
    stage.runtime.end(str(stage.pods(workload, "running")[1].pk), cause="lost")  # type: ignore[arg-type]
    stage.tick(3)
    assert {order.image for order in orders(stage, workload)} == {f"ghcr.io/org/train@{FIRST}"}
    stage.finish(workload, exit_code=1)
    stage.tick(2)
    stage.clock.advance(30)
    stage.tick(4)
    assert (stage.phase(workload), workload.run) == (Phase.RUNNING, 2)
    assert {order.image for order in orders(stage, workload)} == {f"ghcr.io/org/train@{SECOND}"}
    assert list(RunImage.objects.values_list("run", "digest")) == [(1, FIRST), (2, SECOND)]


def test_image_reference_with_a_digest_needs_no_registry_lookup(stage: Stage) -> None:
    workload = stage.submit(image=f"{IMAGE}@{FIRST}")
    stage.tick(2)
    assert stage.phase(workload) == Phase.RUNNING
    assert {order.image for order in orders(stage, workload)} == {f"ghcr.io/org/train@{FIRST}"}
    assert (stage.registries.requests, RunImage.objects.get().digest) == ([], FIRST)


@pytest.mark.heavy
def test_transient_image_lookup_failure_is_shown_and_retried_later(stage: Stage) -> None:
    fault = RegistryErrorKind.UNREACHABLE
    stage.registries.digests[IMAGE] = failure(fault)
    workload = stage.submit(image=IMAGE)
    stage.tick(3)
    assert (stage.phase(workload), orders(stage, workload)) == (Phase.STARTING, [])
    stage.clock.advance(1)
    stage.tick()
    workload.refresh_from_db()
    assert workload.message == f"{fault} happened. Berth tries again."
    assert len(stage.registries.requests) == 1
    for attempts, seconds in ((1, 2), (2, 4), (3, 8)):
        row = RunImage.objects.get()
        assert row.retry_at is not None
        assert (row.attempts, row.error) == (attempts, f"{fault} happened.")
        stage.clock.advance(seconds)
        stage.tick(2)
    stage.registries.digests[IMAGE] = FIRST
    stage.clock.advance(16)
    stage.tick(3)
    assert stage.phase(workload) == Phase.RUNNING
    assert (RunImage.objects.get().digest, RunImage.objects.get().error) == (FIRST, "")


def test_permanent_image_lookup_failure_fails_the_workload_with_the_reason(stage: Stage) -> None:
    fault = RegistryErrorKind.NOT_FOUND
    stage.registries.digests[IMAGE] = failure(fault)
    workload = stage.submit(image=IMAGE, restart_policy={"kind": "always"})
    stage.tick(4)
    assert stage.phase(workload) == Phase.FAILED
    assert (workload.reason, workload.message) == (str(fault), f"{fault} happened.")
    assert (workload.gpu_milli_now, orders(stage, workload)) == (0, [])


@pytest.mark.heavy
def test_unresponsive_registry_fails_the_workload_after_the_start_timeout(stage: Stage) -> None:
    workload = stage.submit(image=IMAGE)
    stage.tick(2)
    stage.clock.advance(300)
    stage.tick(3)
    assert (stage.phase(workload), workload.reason) == (Phase.FAILED, "StartTimeout")
    assert workload.message.endswith(f": Looking up the digest of {IMAGE}.")


@pytest.mark.heavy
def test_digest_that_arrives_after_cancellation_is_discarded(stage: Stage) -> None:
    workload = stage.submit(image=IMAGE)
    stage.tick(2)
    control.cancel(actor=stage.cast.alice, workload=workload)
    stage.registries.digests[IMAGE] = FIRST
    stage.tick(4)
    assert stage.phase(workload) == Phase.CANCELLED
    assert not [order for order in orders(stage, workload) if order.image]
    assert not RunImage.objects.exists()


@pytest.mark.heavy
def test_image_digest_is_looked_up_again_after_an_eviction(stage: Stage) -> None:
    whole = [{"name": "worker", "replicas": 4, "gpu": 1}]
    workload = stage.submit(image=IMAGE, roles=whole, priority=10)
    stage.tick(2)
    high = stage.submit("high", roles=whole, priority=90)
    stage.tick(4)
    assert (stage.phase(workload), stage.phase(high)) == (Phase.PENDING, Phase.RUNNING)
    stage.registries.digests[IMAGE] = SECOND
    stage.finish(high)
    stage.tick(9, seconds=1)
    assert (stage.phase(workload), workload.run) == (Phase.RUNNING, 2)
    assert list(RunImage.objects.values_list("run", "digest")) == [(2, SECOND)]


@pytest.mark.parametrize("name", sample(["dispatch.images", "dispatch.before_start", "dispatch.started"], 1))
def test_scheduler_crash_neither_loses_nor_duplicates_the_digest(stage: Stage, name: str) -> None:
    stage.registries.digests[IMAGE] = FIRST
    workload = stage.submit(image=IMAGE, roles=GANG)
    stage.tick()

    with killed_at(name):
        stage.tick(3)
    stage.registries.digests[IMAGE] = SECOND
    stage.loop = stage.new_loop()
    stage.tick(3)
    assert stage.phase(workload) == Phase.RUNNING
    assert {order.image for order in orders(stage, workload)} == {f"ghcr.io/org/train@{FIRST}"}
    assert list(RunImage.objects.values_list("run", "digest")) == [(1, FIRST)]
    assert len(stage.registries.requests) == 1


@pytest.mark.heavy
def test_digest_lookup_lost_in_a_scheduler_crash_is_repeated(stage: Stage) -> None:
    workload = stage.submit(image=IMAGE)
    stage.tick(2)
    stage.registries = type(stage.registries)()
    stage.registries.digests[IMAGE] = FIRST
    stage.loop = stage.new_loop()
    stage.tick(3)
    assert stage.phase(workload) == Phase.RUNNING


def test_digest_lookup_and_pull_use_the_projects_credentials(stage: Stage) -> None:
    content = SecretContent(value="pass", registry="ghcr.io", username="robot")
    set_project_secret(
        actor=stage.cast.alice, project=stage.cast.vision, name="ghcr", content=content, at=stage.clock.now()
    )
    workload = started(stage)
    (order, *_) = orders(stage, workload)
    assert '"ghcr.io"' in order.registry_auth
    assert stage.registries.requests == [(IMAGE, order.registry_auth)]


@pytest.mark.heavy
def test_pods_of_an_idle_role_need_no_image(stage: Stage) -> None:
    roles = [{"name": "worker", "gpu": 1}, {"name": "ps", "cpu": 1, "idle": True}]
    workload = started(stage, roles=roles)
    assert sorted(bool(order.image) for order in orders(stage, workload)) == [False, True]


@pytest.mark.heavy
def test_pull_progress_is_updated_at_most_once_a_second(stage: Stage) -> None:
    stage.runtime.runs_immediately = False
    stage.registries.digests[IMAGE] = FIRST
    workload = stage.submit(image=IMAGE, roles=GANG)
    stage.tick(2)
    first, second = (str(pod.pk) for pod in stage.pods(workload))
    stage.clock.advance(1)
    messages = []
    for layer in range(1, 10):
        for pod_id in (first, second):
            stage.runtime.report_progress(pod_id, f"pulling layer {layer} of 9")
        stage.tick(seconds=0.3)
        workload.refresh_from_db()
        messages.append(workload.message)
    assert messages[0] == "Pod worker-0: pulling layer 1 of 9; 1 more starting."
    assert len(set(messages)) == 3
    stage.clock.advance(1)
    stage.tick()
    workload.refresh_from_db()
    assert workload.message == "Pod worker-0: pulling layer 9 of 9; 1 more starting."
    stage.runtime.run(first)
    stage.runtime.run(second)
    stage.tick(2)
    assert stage.phase(workload) == Phase.RUNNING
    assert workload.message == "All required pods are running."


@pytest.mark.heavy
def test_progressing_pull_may_exceed_the_start_timeout(stage: Stage) -> None:
    stage.runtime.runs_immediately = False
    stage.registries.digests[IMAGE] = FIRST
    workload = stage.submit(image=IMAGE, roles=[{"name": "worker", "gpu": 1}])
    stage.tick(2)
    (pod,) = stage.pods(workload)
    for megabytes in (26, 52, 78):
        stage.runtime.report_progress(str(pod.pk), f"pulling layer 1 of 2, {megabytes} MB")
        stage.tick()
        stage.clock.advance(timedelta(minutes=14).total_seconds())
        stage.tick()
        assert stage.phase(workload) == Phase.STARTING
    stage.clock.advance(61)
    stage.tick(3)
    assert (stage.phase(workload), workload.reason) == (Phase.FAILED, "StartTimeout")
    assert workload.message.endswith(": Pod worker-0: pulling layer 1 of 2, 78 MB.")
