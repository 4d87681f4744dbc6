"""Tests for the secrets of pods: their values are read when the pod starts."""

import pytest
from django.utils import timezone

from pools.runtimes.base import PodOrder
from pools.services.secrets import SecretContent
from projects.models import Phase, ProjectSecret, Workload
from projects.services.secrets import set_project_secret
from tests.scheduler.stage import Stage

USES = [{"name": "token", "env": "HF_TOKEN"}, {"name": "token", "file": "token.txt"}]


def set_token(stage: Stage, value: str) -> None:
    set_project_secret(
        actor=stage.cast.carol, project=stage.cast.vision, name="token", content=SecretContent(value),
        at=timezone.now(),
    )  # fmt: skip


def find_order(stage: Stage, workload: Workload) -> PodOrder:
    order = stage.runtime.order(str(stage.pods(workload, "starting", "running")[0].pk))
    assert order is not None
    return order


@pytest.fixture
def workload(stage: Stage) -> Workload:
    set_token(stage, "first")
    return stage.submit(secrets=USES, restart_policy={"kind": "on_failure"})


def test_pod_gets_the_secrets_of_its_document(stage: Stage, workload: Workload) -> None:
    stage.tick(2)
    order = find_order(stage, workload)
    assert order.secret_env["HF_TOKEN"] == "first"
    assert order.secret_files == {"token.txt": "first"}
    assert "first" not in str(order), "a log of the order contains no secret"


def test_next_run_gets_the_changed_secret(stage: Stage, workload: Workload) -> None:
    stage.tick(2)
    set_token(stage, "second")
    assert find_order(stage, workload).secret_env["HF_TOKEN"] == "first"
    stage.finish(workload, exit_code=1)
    stage.tick(4, seconds=120)
    assert find_order(stage, workload).secret_env["HF_TOKEN"] == "second"


def test_pod_whose_secret_was_deleted_does_not_start_and_states_the_reason(
    stage: Stage, workload: Workload
) -> None:
    ProjectSecret.objects.all().delete()
    stage.tick(2)
    reason = "The secret token is neither in project vision nor in pool local."
    assert stage.pods(workload, "starting")[0].message.startswith(f"could not be started yet: {reason}")
    stage.tick(4, seconds=310)
    assert stage.phase(workload) == Phase.FAILED
    assert workload.reason == "StartTimeout"
    assert reason in workload.message


def test_pod_starts_once_its_secret_is_set_again(stage: Stage, workload: Workload) -> None:
    ProjectSecret.objects.all().delete()
    stage.tick(2)
    set_token(stage, "third")
    stage.tick(2, seconds=20)
    assert stage.phase(workload) == Phase.RUNNING
    assert find_order(stage, workload).secret_files == {"token.txt": "third"}
