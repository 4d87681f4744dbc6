"""Tests that dry runs predict the next cycle."""

from datetime import timedelta

import pytest
from django.test import Client

from berth.core.values.priorities import DEFAULT, SERVICE_DEFAULT
from berth.documents.ordered import dump_workload
from projects.models import Workload
from projects.services import workloads
from projects.services.workloads.prediction import Prediction, dry_run, predict_edit
from scheduler.models import Eviction
from tests.cast import training
from tests.scheduler.stage import Stage
from tests.support.present import present

FOUR = [{"name": "worker", "replicas": 4, "gpu": 1}]


def predict(stage: Stage, who: str = "alice", project: str = "vision", **changes: object) -> Prediction:
    document = training("asked", project=project, **changes)
    prediction = dry_run(actor=stage.cast.people[who], document=document, now=stage.clock.now())
    assert not Workload.objects.filter(name="asked").exists()
    return prediction


def test_predicted_start_names_nodes_and_devices(stage: Stage) -> None:
    prediction = predict(stage)
    assert (prediction.outcome, prediction.blockers, prediction.evictions) == ("would_start", [], [])
    workload = stage.submit("asked")
    stage.tick()
    placed = stage.pods(workload)
    pods = {(pod.role, pod.index, pod.node.name, tuple(pod.allocation.devices)) for pod in placed}
    (decision,) = prediction.decisions
    assert pods == {(p["role"], p["index"], p["node"], tuple(p["devices"])) for p in decision["pods"]}


def test_predicted_blockers_match_the_later_explanation(stage: Stage) -> None:
    stage.submit("held", roles=FOUR, max_runtime=600)
    stage.tick(2, seconds=10)
    prediction = predict(stage, roles=FOUR)
    assert prediction.outcome == "would_stay_pending"
    workload = stage.submit("asked", roles=FOUR)
    stage.tick()
    workload.refresh_from_db()
    explanation = present(workload.explanation)
    assert [(b["reason"], b["message"]) for b in prediction.blockers] == [
        (b["reason"], b["message"]) for b in explanation["blockers"]
    ]
    assert prediction.blockers
    assert all(blocker["numbers"] for blocker in prediction.blockers)
    assert prediction.queue_position == explanation["queue_position"] == 1
    assert prediction.expected_start_reason == explanation["expected_start_reason"]
    assert prediction.expected_start is not None
    assert prediction.expected_start.isoformat() == explanation["expected_start"]


def test_predicted_victims_match_the_actual_victims(stage: Stage) -> None:
    cast = stage.cast
    stage.quota(cast.product, 4)
    stage.quota(cast.ads, 4)
    cast.research.quotas.update(gpu_milli=0)
    cast.vision.quotas.update(gpu_milli=0)
    stage.submit("held", roles=FOUR)
    stage.tick(2, seconds=10)
    prediction = predict(stage, project="ads")
    assert prediction.outcome == "would_evict"
    stage.submit("asked", cast.ads)
    stage.tick()
    row = Eviction.objects.get()
    (eviction,) = prediction.evictions
    assert (eviction["kind"], eviction["workload"], eviction["rule"]) == (
        row.kind,
        row.workload_name,
        row.rule,
    )
    assert (eviction["gpus"] * 1000, eviction["lost_gpu_seconds"] <= row.lost_gpu_seconds) == (
        row.gpu_milli,
        True,
    )


def test_predicted_edit_keeps_the_queue_position_unless_the_request_grows(stage: Stage) -> None:
    stage.submit("held", roles=FOUR, max_runtime=600, priority=90)
    stage.tick(2, seconds=10)
    first, second = stage.submit("first", roles=FOUR), stage.submit("second", roles=FOUR)
    stage.tick(2, seconds=10)

    def predicted_position(workload: Workload, **patch: object) -> int | None:
        edit = workloads.edit(
            actor=stage.cast.alice, workload=workload, patch=patch, dry_run=True, now=stage.clock.now()
        )
        return predict_edit(actor=stage.cast.alice, edit=edit, now=stage.clock.now()).queue_position

    assert predicted_position(first, labels={"team": "nlp"}) == 1
    assert predicted_position(second, priority=60) == 1
    larger = [{"name": "worker", "replicas": 4, "gpu": 1, "cpu": 2}]
    assert predicted_position(first, roles=larger) == 2
    workloads.suspend(actor=stage.cast.alice, workload=second)
    assert predicted_position(second, priority=60) == 1


def test_dry_run_reports_unmet_dependencies(stage: Stage) -> None:
    stage.submit("first")
    after = [{"workload": "first"}]
    assert [blocker["reason"] for blocker in predict(stage, after=after).blockers] == ["DependencyNotMet"]
    dependent = stage.submit("second", after=after)
    workloads.suspend(actor=stage.cast.alice, workload=dependent)
    edits = [
        workloads.edit(actor=stage.cast.alice, workload=dependent, patch=patch, dry_run=True)
        for patch in ({"priority": 60}, {"after": None})
    ]
    outcomes = [predict_edit(actor=stage.cast.alice, edit=edit).outcome for edit in edits]
    assert outcomes == ["would_stay_pending", "would_start"]


@pytest.mark.parametrize("gpus", [0, 1, 2])
def test_limit_blocker_states_its_numbers(stage: Stage, gpus: int) -> None:
    stage.cast.vision.quotas.update(gpu_milli=0, limit_gpu_milli=gpus * 1000)
    prediction = predict(stage, roles=FOUR)
    assert prediction.outcome == "would_stay_pending"
    assert prediction.blockers[0]["reason"] == "ProjectLimit"
    assert prediction.blockers[0]["numbers"]["bound"] == gpus * 1000
    assert prediction.expected_start is None
    assert prediction.expected_start_reason.startswith("the request alone exceeds the limit")


def test_no_cycle_is_recorded_while_nothing_changes(stage: Stage) -> None:
    # No cycle is recorded while nothing changes, even if running workloads are overdue.
    from scheduler.models import Cycle

    stage.submit("held", roles=FOUR, max_runtime=600)
    stage.tick(2, seconds=10)
    stage.submit("waits", roles=FOUR)
    stage.tick(2, seconds=5)
    before = Cycle.objects.count()
    stage.tick(4, seconds=5)
    assert Cycle.objects.count() == before


def test_submission_without_a_priority_does_not_preempt_a_service(stage: Stage) -> None:
    service = stage.submit("chat", kind="service", service={}, roles=FOUR)
    stage.tick(2, seconds=10)
    assert stage.phase(service) == "running"
    assert service.priority == SERVICE_DEFAULT > DEFAULT
    answer = predict(stage, roles=FOUR)
    assert (answer.outcome, answer.evictions) == ("would_stay_pending", [])
    waiting = stage.submit("asked", roles=FOUR)
    stage.tick(2, seconds=10)
    assert (stage.phase(service), stage.phase(waiting)) == ("running", "pending")


def test_edit_page_names_the_workloads_that_would_be_evicted(stage: Stage) -> None:
    stage.submit("low", roles=FOUR, priority=10)
    stage.tick(2)
    waiting = stage.submit("waiting", roles=FOUR, priority=5)
    client = Client()
    client.force_login(stage.cast.alice.user)
    document = dump_workload({**waiting.spec, "priority": 90})
    answer = client.post(f"/workloads/{waiting.pk}/edit/prediction", {"document": document})
    page = answer.content.decode()
    assert "Would start and evict 1 other workload" in page
    low = Workload.objects.get(name="low")
    assert f'<a href="/workloads/{low.pk}">vision/low</a> would be <strong>preempted</strong></p>' in page
    assert f'Evicts <a href="/workloads/{low.pk}">vision/low</a> (4' in page
    assert 'Why<span class="visually-hidden"> this eviction' in page and ">Save and evict</span>" in page
    form = dump_workload({**waiting.spec, "name": "other", "project": "vision", "priority": 90})
    answer = client.post("/submit/prediction", {"document": form})
    assert ">Submit and evict</span>" in answer.content.decode()


def test_prediction_states_when_the_end_of_another_workloads_backoff_may_change_it(stage: Stage) -> None:
    stage.submit("held", roles=FOUR)
    stage.tick()
    retried = stage.submit("retried", roles=FOUR)
    assert predict(stage, roles=FOUR).may_change_at is None
    until = (stage.clock.now() + timedelta(seconds=90)).replace(microsecond=0)
    Workload.objects.filter(pk=retried.pk).update(backoff_until=until)
    assert predict(stage, roles=FOUR).may_change_at == until
    Workload.objects.filter(pk=retried.pk).update(backoff_until=stage.clock.now() - timedelta(seconds=1))
    assert predict(stage, roles=FOUR).may_change_at is None
