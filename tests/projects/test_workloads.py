"""Tests for the services that submit, cancel, suspend and resume workloads."""

from datetime import UTC, datetime, timedelta

import pytest
from django.utils import timezone

from berth.core.errors import Conflict, Invalid, NotFound
from pools.models import NodePool
from projects.models import Audit, Event, Phase, Workload
from projects.services import quotas, workloads
from projects.services.workloads.phase_transitions import change_phase
from tests.cast import Cast, training


def test_submitted_workload_is_pending_with_its_roles(cast: Cast) -> None:
    document = training(
        roles=None,
        groups=[
            {"name": "prefill", "need": 1, "roles": [{"name": "p", "replicas": 2, "gpu": 0.5}]},
            {"name": "decode", "roles": [{"name": "d", "min": 1, "max": 4, "gpu": 2}]},
        ],
    )
    document.pop("roles")
    workload = workloads.submit(actor=cast.dave, project=cast.vision, document=document)
    assert (workload.phase, workload.pools, workload.gpu_milli_min) == (Phase.PENDING, ["local"], 3000)
    assert [(r.position, r.name, r.min, r.max) for r in workload.roles.all()] == [
        (0, "p", 2, 2),
        (1, "d", 1, 4),
    ]


def test_name_of_a_completed_workload_can_be_reused(cast: Cast) -> None:
    first = workloads.submit(actor=cast.dave, project=cast.vision, document=training())
    with pytest.raises(Conflict, match="train-1"):
        workloads.submit(actor=cast.dave, project=cast.vision, document=training())
    workloads.cancel(actor=cast.dave, workload=first)
    assert workloads.submit(actor=cast.dave, project=cast.vision, document=training()).pk != first.pk


def test_hidden_project_looks_like_a_missing_project(cast: Cast) -> None:
    for name in ("ads", "no-such-project"):
        with pytest.raises(Invalid, match="does not exist"):
            workloads.submit(actor=cast.dave, document=training(project=name))
    with pytest.raises(NotFound):
        workloads.submit(actor=cast.dave, project=cast.ads, document=training())


def test_repeating_a_cancellation_or_suspension_has_no_effect(cast: Cast) -> None:
    workload = workloads.submit(actor=cast.dave, project=cast.vision, document=training())
    for action, phase in (
        (workloads.suspend, Phase.SUSPENDED),
        (workloads.resume, Phase.PENDING),
        (workloads.cancel, Phase.CANCELLED),
    ):
        for _ in range(2 if action is not workloads.resume else 1):
            workload = action(actor=cast.dave, workload=workload)
            assert workload.phase == phase
    kinds = list(Event.objects.order_by("id").values_list("kind", flat=True))
    assert kinds == ["submitted", "suspended", "pending", "cancelled"]
    audited = Audit.objects.filter(object_type="workload", before__isnull=False).order_by("id")
    assert list(audited.values_list("action", "before__phase", "after__phase")) == [
        ("suspend", "pending", "suspended"), ("resume", "suspended", "pending"),
        ("cancel", "pending", "cancelled"),
    ]  # fmt: skip


def test_running_workload_stops_before_cancellation_completes(cast: Cast) -> None:
    workload = workloads.submit(actor=cast.dave, project=cast.vision, document=training())
    Workload.objects.update(phase=Phase.RUNNING)
    workload = workloads.suspend(actor=cast.dave, workload=workload)
    assert (workload.phase, workload.next_phase) == (Phase.STOPPING, Phase.SUSPENDED)
    workload = workloads.cancel(actor=cast.dave, workload=workload)
    assert (workload.phase, workload.next_phase) == (Phase.STOPPING, Phase.CANCELLED)
    with pytest.raises(Conflict):
        workloads.suspend(actor=cast.dave, workload=workload)


def test_only_ended_workloads_can_be_deleted_and_their_events_remain(cast: Cast) -> None:
    workload = workloads.submit(actor=cast.dave, project=cast.vision, document=training())
    with pytest.raises(Conflict, match="Cancel the workload before you delete it"):
        workloads.delete(actor=cast.dave, workload=workload)
    workload = workloads.cancel(actor=cast.dave, workload=workload)
    workloads.delete(actor=cast.dave, workload=workload)
    assert not Workload.objects.exists()
    assert Event.objects.filter(workload_id=workload.pk).count() == 3


def test_second_phase_change_from_the_same_phase_has_no_effect(cast: Cast) -> None:
    workload = workloads.submit(actor=cast.dave, project=cast.vision, document=training())
    moved = [
        change_phase(
            workload,
            expected=[Phase.PENDING],
            to=Phase.STARTING,
            reason="Placed",
            message="",
            actor="scheduler",
            now=timezone.now(),
        )
        for _ in range(2)
    ]
    assert moved == [True, False]
    assert Event.objects.filter(kind="starting").count() == 1


@pytest.mark.shows("RAI-14")
def test_submission_over_quota_or_limit_returns_a_warning(cast: Cast) -> None:
    for owner, gpus in ((cast.research, 4), (cast.vision, 3), (cast.speech, 3)):
        values = {"gpu": gpus, "limit": {"gpu": 6}}
        quotas.set_quota(actor=cast.alice, owner=owner, pool=cast.pool, values=values)
    four = [{"name": "worker", "replicas": 4, "gpu": 1}]
    non_preemptible = workloads.submit(
        actor=cast.dave, project=cast.vision, document=training("firm", preemptible=False, roles=four)
    )
    huge = workloads.submit(
        actor=cast.dave, project=cast.vision, document=training("huge", roles=[{"replicas": 7, "gpu": 1}])
    )
    small = workloads.submit(actor=cast.dave, project=cast.vision, document=training("small"))
    warnings = {e.workload_id: e.data["warnings"] for e in Event.objects.filter(kind="submitted")}
    assert ["quota of vision" in text or "add up" in text for text in warnings[non_preemptible.pk]] == [
        True,
        True,
    ]
    assert ["limit of vision" in warnings[huge.pk][0], "limit of research" in warnings[huge.pk][1]] == [
        True,
        True,
    ]
    assert warnings[small.pk] == []


def test_submission_with_a_missing_dependency_records_a_warning(cast: Cast) -> None:
    document = training("second", after=[{"workload": "first"}, {"workload": "small"}])
    workloads.submit(actor=cast.dave, project=cast.vision, document=training("small"))
    dependent = workloads.submit(actor=cast.dave, project=cast.vision, document=document)
    (warning,) = Event.objects.get(workload_id=dependent.pk).data["warnings"]
    assert warning == "The dependency vision/first does not exist yet."


def test_deadline_in_the_past_is_rejected(cast: Cast) -> None:
    now = datetime(2026, 5, 1, 12, tzinfo=UTC)
    late = training("late", deadline="2026-05-01T13:00:00+01:00")
    with pytest.raises(Invalid) as rejected:
        workloads.submit(actor=cast.dave, project=cast.vision, document=late, now=now)
    (problem,) = rejected.value.problems
    assert (problem.path, problem.message) == ("deadline", "has passed")
    assert problem.allowed == "later than 2026-05-01T12:00:00+00:00"
    workloads.submit(
        actor=cast.dave, project=cast.vision, document=late, now=now - timedelta(seconds=1)
    )  # fmt: skip


def test_expired_pool_is_used_only_if_requested_by_name(cast: Cast) -> None:
    now = timezone.now()
    NodePool.objects.create(name="old", expires_at=now - timedelta(hours=1))
    NodePool.objects.create(name="soon", expires_at=now + timedelta(hours=1))
    usual = workloads.submit(actor=cast.dave, project=cast.vision, document=training("usual"), now=now)
    named = workloads.submit(
        actor=cast.dave, project=cast.vision, document=training("named", pools=["old"]), now=now
    )
    assert (usual.pools, named.pools) == (["local", "soon"], ["old"])
