"""Tests for pending explanations, dry runs and scheduler health."""

import pytest
from django.utils import timezone

from pools.models import Node
from projects.models import Quota, Workload
from projects.services import workloads
from scheduler.models import QueueStatus
from tests.api.conftest import Caller
from tests.cast import Cast, training


@pytest.fixture
def gpu_node(cast: Cast) -> None:
    Node.objects.create(
        pool=cast.pool, name="local-0", ordinal=0, state="ready", instance_id="i-0",
        gpus=2, cpu_milli=8000, memory_mib=16384, since=timezone.now(),
    )  # fmt: skip
    cast.pool.operational_since = timezone.now()
    cast.pool.save()
    for owner in ({"department": cast.research}, {"project": cast.vision}):
        Quota.objects.create(pool=cast.pool, gpu_milli=2000, **owner)


def test_dry_run_predicts_the_outcome_and_stores_nothing(gpu_node: None, dave: Caller) -> None:
    prediction = dave("POST", "workloads", training(project="vision"), dry_run="true")
    assert (prediction.status_code, prediction.json()["outcome"]) == (200, "would_start")
    assert {pod["node"] for pod in prediction.json()["decisions"][0]["pods"]} == {"local-0"}
    large = training(project="vision", roles=[{"name": "worker", "replicas": 3, "gpu": 1}])
    pending = dave("POST", "workloads", large, dry_run="true").json()
    assert pending["outcome"] == "would_stay_pending"
    assert pending["blockers"][0]["message"]
    assert not Workload.objects.exists()


def test_edit_preview_predicts_the_effect_of_the_edit(cast: Cast, gpu_node: None, dave: Caller) -> None:
    large = [{"name": "worker", "replicas": 3, "gpu": 1}]
    workload = workloads.submit(actor=cast.dave, project=cast.vision, document=training(roles=large))
    address, smaller = f"workloads/{workload.pk}", {"roles": [{"name": "worker", "replicas": 2, "gpu": 1}]}
    preview = dave("PATCH", address, smaller, dry_run="true").json()
    assert preview["prediction"]["outcome"] == "would_start"
    assert len(preview["prediction"]["decisions"][0]["pods"]) == 2
    unchanged = dave("PATCH", address, {"priority": 60}, dry_run="true").json()["prediction"]
    assert (unchanged["outcome"], unchanged["workload"]["priority"]) == ("would_stay_pending", 60)
    assert dave("PATCH", address, smaller).json()["prediction"] is None


@pytest.mark.heavy
def test_dry_run_lists_the_errors_in_an_invalid_document(gpu_node: None, dave: Caller) -> None:
    prediction = dave("POST", "workloads", training("-", project="vision"), dry_run="true")
    assert (prediction.status_code, prediction.json()["outcome"]) == (200, "invalid")
    assert prediction.json()["errors"][0]["path"] == "name"


def test_dry_run_needs_the_same_role_as_a_submission(gpu_node: None, erin: Caller) -> None:
    assert erin("POST", "workloads", training(project="vision"), dry_run="true").status_code == 403


def test_explanation_lists_the_last_cycles_blockers_and_queue_status(
    cast: Cast, gpu_node: None, dave: Caller
) -> None:
    workload = workloads.submit(actor=cast.dave, project=cast.vision, document=training())
    Workload.objects.filter(pk=workload.pk).update(
        reason="NoRoom",
        message="No node has room.",
        explained_at=timezone.now(),
        pending_reasons=[
            {"reason": "WouldExceedFairShare", "since": "2030-01-01T00:00:00+00:00"},
            {"reason": "NoRoom", "since": "2030-01-01T00:03:00+00:00"},
        ],
        explanation={
            "pool": "local", "queue_position": 3, "ordering": ["rank 0"], "cycle": 7,
            "expected_start": "2030-01-01T00:00:00+00:00",
            "blockers": [{"reason": "NoRoom", "message": "None has room.", "numbers": {"free_gpu_milli": 0}}],
        },
    )  # fmt: skip
    QueueStatus.objects.create(
        pool=cast.pool, project=cast.vision, share=[2000, 0, 0], allocated=[500, 0, 0],
        requested=[2000, 0, 0], usage=[0, 0, 0], at=timezone.now(),
    )  # fmt: skip
    why = dave.get(f"workloads/{workload.pk}/explain").json()
    assert (why["queue_position"], why["cycle"], why["ordering"]) == (3, 7, ["rank 0"])
    assert why["expected_start"] == "2030-01-01T00:00:00Z"
    assert why["pending_history"] == [
        {"reason": "WouldExceedFairShare", "since": "2030-01-01T00:00:00Z", "until": "2030-01-01T00:03:00Z"},
        {"reason": "NoRoom", "since": "2030-01-01T00:03:00Z", "until": None},
    ]
    assert why["blockers"][0]["numbers"] == {"free_gpu_milli": 0}
    assert why["queue"]["project"]["quota"]["gpu"] == 2
    assert why["queue"]["project"]["allocated"]["gpu"] == 0.5
    listed = dave.get("workloads").json()["items"][0]
    assert (listed["queue_position"], listed["expected_start"]) == (3, "2030-01-01T00:00:00Z")


@pytest.mark.heavy
def test_smallest_change_is_returned_as_a_sentence_and_as_data(
    cast: Cast, gpu_node: None, dave: Caller
) -> None:
    roles = [{"name": "worker", "replicas": 3, "gpu": 1}]
    workload = workloads.submit(actor=cast.dave, project=cast.vision, document=training(roles=roles))
    assert dave.get(f"workloads/{workload.pk}/smallest-change").json() == {
        "outcome": "change",
        "sentence": "The workload would start now if it had 2 worker replicas instead of 3.",
        "change": {
            "kind": "request_lowered", "subject": "worker", "resource": "replicas", "pool": "",
            "before": 3, "after": 2,
        },
        "evicted_workloads": 0, "scaled_down_workloads": 0, "moved_workloads": 0,
        "change_without_evictions": None,
    }  # fmt: skip


def test_smallest_change_is_found_without_storing_the_document(gpu_node: None, dave: Caller) -> None:
    document = training(project="vision", roles=[{"name": "worker", "replicas": 3, "gpu": 1}])
    answer = dave("POST", "workloads:smallest-change", document).json()
    assert answer["sentence"] == "The workload would start now if it had 2 worker replicas instead of 3."
    assert (answer["outcome"], answer["change"]["after"]) == ("change", 2)
    invalid = dave("POST", "workloads:smallest-change", {**document, "roles": []})
    assert invalid.status_code == 422 and invalid.json()["errors"][0]["path"] == "roles"
    assert not Workload.objects.exists()


@pytest.mark.heavy
def test_workload_that_is_not_pending_has_no_smallest_change(
    cast: Cast, gpu_node: None, dave: Caller
) -> None:
    workload = workloads.submit(actor=cast.dave, project=cast.vision, document=training())
    Workload.objects.filter(pk=workload.pk).update(phase="running")
    answer = dave.get(f"workloads/{workload.pk}/smallest-change").json()
    assert (answer["outcome"], answer["sentence"], answer["change"]) == (
        "not_needed", "The workload is not pending.", None,
    )  # fmt: skip


def test_health_endpoint_checks_the_scheduler_invariants(cast: Cast, alice: Caller) -> None:
    health = alice.get("scheduler/health").json()
    invariants = {invariant["name"]: invariant["ok"] for invariant in health["invariants"]}
    assert invariants["no_device_oversold"] is True
    assert (invariants["one_leader"], health["leader"]) == (False, None)
    workloads.submit(actor=cast.dave, project=cast.vision, document=training())
    Workload.objects.update(gpu_milli_now=1000)
    health = alice.get("scheduler/health").json()
    broken = [invariant["name"] for invariant in health["invariants"] if not invariant["ok"]]
    assert (broken, health["pending"]) == (["one_leader", "holdings_are_counted_right"], 1)
