"""Tests for the reason of a predicted queue position."""

import pytest
from django.test import Client

from berth.documents.ordered import dump_workload
from projects.actor import Actor
from projects.services.workloads.prediction import dry_run
from tests.cast import training
from tests.scheduler.stage import Stage

FOUR = [{"name": "worker", "replicas": 4, "gpu": 1, "cpu": 2}]


def reason(stage: Stage, actor: Actor, priority: int = 50) -> tuple[int | None, str]:
    document = {"name": "next", "project": "vision", "command": "c", "roles": FOUR, "priority": priority}
    prediction = dry_run(actor=actor, document=document, now=stage.clock.now())
    return prediction.queue_position, prediction.queue_position_reason


@pytest.fixture
def full_stage(stage: Stage) -> Stage:
    stage.submit("held", roles=FOUR, max_runtime=600, priority=90)
    stage.tick(2, seconds=10)
    return stage


def test_first_queue_position_needs_no_explanation(full_stage: Stage) -> None:
    assert reason(full_stage, full_stage.cast.alice) == (1, "")


def test_queue_position_within_a_project_is_explained_by_priority_and_submission_time(
    full_stage: Stage,
) -> None:
    full_stage.submit("first", roles=FOUR)
    full_stage.tick(2, seconds=10)
    alice = full_stage.cast.alice
    assert reason(full_stage, alice) == (2, "first is ahead because it was submitted earlier")
    assert reason(full_stage, alice, 40) == (2, "first is ahead because it has a higher priority")
    assert reason(full_stage, alice, 60) == (1, "")


def test_queue_position_behind_another_project_is_explained_by_quota(full_stage: Stage) -> None:
    cast = full_stage.cast
    for queue in (cast.product, cast.ads):
        full_stage.quota(queue, 4)
    full_stage.submit("theirs", cast.ads, roles=FOUR)
    full_stage.tick(2, seconds=10)
    expected = "product is ahead because it is within quota, unlike research"
    assert reason(full_stage, cast.alice) == (2, expected)
    assert reason(full_stage, cast.dave) == (2, expected.replace("product", "another project"))


def test_submit_page_explains_the_predicted_position(full_stage: Stage) -> None:
    full_stage.submit("first", roles=FOUR)
    full_stage.tick(2, seconds=10)
    client = Client()
    client.force_login(full_stage.cast.dave.user)
    document = dump_workload(training("next", roles=FOUR))
    page = client.post("/submit/prediction", {"document": document}).content.decode()
    assert "<summary>2</summary>" in page and "first is ahead because it was submitted earlier." in page
