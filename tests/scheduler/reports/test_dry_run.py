"""Dry runs predict what then happens."""

import pytest

from berth.core.priorities import DEFAULT, SERVICE_DEFAULT
from projects.models import Workload
from projects.services.workloads.prediction import Prediction, dry_run
from scheduler.models import Eviction
from tests.cast import training
from tests.scheduler.stage import Stage

FOUR = [{"name": "worker", "replicas": 4, "gpu": 1}]


def asked(stage: Stage, who: str = "alice", project: str = "vision", **changes: object) -> Prediction:
    document = training("asked", project=project, **changes)
    found = dry_run(acting=stage.cast.people[who], document=document, now=stage.clock.now())
    assert not Workload.objects.filter(name="asked").exists()
    return found


def test_would_start_says_where(stage: Stage) -> None:
    told = asked(stage)
    assert (told.outcome, told.blockers, told.evictions) == ("would_start", [], [])
    workload = stage.submit("asked")
    stage.tick()
    placed = stage.pods(workload)
    pods = {(pod.role, pod.index, pod.node.name, tuple(pod.allocation.devices)) for pod in placed}
    (decision,) = told.decisions
    assert pods == {(p["role"], p["index"], p["node"], tuple(p["devices"])) for p in decision["pods"]}


def test_would_wait_says_all_that_the_explanation_says_then(stage: Stage) -> None:
    stage.submit("held", roles=FOUR, max_runtime=600)
    stage.tick(2, seconds=10)
    told = asked(stage, roles=FOUR)
    assert told.outcome == "would_wait"
    workload = stage.submit("asked", roles=FOUR)
    stage.tick()
    workload.refresh_from_db()
    said = workload.explanation
    assert [(b["reason"], b["message"]) for b in told.blockers] == [
        (b["reason"], b["message"]) for b in said["blockers"]
    ]
    assert told.blockers
    assert all(blocker["numbers"] for blocker in told.blockers)
    assert told.queue_position == said["queue_position"] == 1
    assert told.expected_start_reason == said["expected_start_reason"]
    assert told.expected_start is not None
    assert told.expected_start.isoformat() == said["expected_start"]


def test_would_evict_says_whom_and_then_they_go(stage: Stage) -> None:
    cast = stage.cast
    stage.quota(cast.product, 4)
    stage.quota(cast.ads, 4)
    cast.research.quotas.update(gpu_milli=0)
    cast.vision.quotas.update(gpu_milli=0)
    stage.submit("held", roles=FOUR)
    stage.tick(2, seconds=10)
    told = asked(stage, project="ads")
    assert told.outcome == "would_evict"
    stage.submit("asked", cast.ads)
    stage.tick()
    row = Eviction.objects.get()
    (gone,) = told.evictions
    assert (gone["kind"], gone["workload"], gone["rule"]) == (row.kind, row.workload_name, row.rule)
    assert (gone["gpus"] * 1000, gone["lost_gpu_seconds"] <= row.lost_gpu_seconds) == (row.gpu_milli, True)


@pytest.mark.parametrize("gpus", [0, 1, 2])
def test_a_limit_is_told_with_its_numbers(stage: Stage, gpus: int) -> None:
    stage.cast.vision.quotas.update(gpu_milli=0, limit_gpu_milli=gpus * 1000)
    told = asked(stage, roles=FOUR)
    assert told.outcome == "would_wait"
    assert told.blockers[0]["reason"] == "ProjectLimit"
    assert told.blockers[0]["numbers"]["bound"] == gpus * 1000
    assert told.expected_start is None
    assert told.expected_start_reason.startswith("another workload of its project has to end")


def test_an_estimate_that_stays_the_same_is_no_news(stage: Stage) -> None:
    """Cycles in which nothing happens stay quiet, also where what runs is overdue."""
    from scheduler.models import Cycle

    stage.submit("held", roles=FOUR, max_runtime=600)
    stage.tick(2, seconds=10)
    stage.submit("waits", roles=FOUR)
    stage.tick(2, seconds=5)
    before = Cycle.objects.count()
    stage.tick(4, seconds=5)
    assert Cycle.objects.count() == before


def test_submission_without_a_priority_leaves_a_running_service_alone(stage: Stage) -> None:
    service = stage.submit("chat", kind="service", service={}, roles=FOUR)
    stage.tick(2, seconds=10)
    assert stage.phase(service) == "running"
    assert service.priority == SERVICE_DEFAULT > DEFAULT
    answer = asked(stage, roles=FOUR)
    assert (answer.outcome, answer.evictions) == ("would_wait", [])
    waiting = stage.submit("asked", roles=FOUR)
    stage.tick(2, seconds=10)
    assert (stage.phase(service), stage.phase(waiting)) == ("running", "pending")
