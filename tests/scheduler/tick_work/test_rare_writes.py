"""Tests that rare writes take a constant number of statements, and that bad rows are isolated."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.test import override_settings

from berth.db.loops.leader import TIMEOUT
from pools.models import Node
from pools.runtimes import capabilities
from pools.runtimes.base import RuntimeFailure
from pools.runtimes.capabilities import Capabilities
from pools.services import drain_node
from pools.services.secrets import SecretContent
from projects.models import Delivery, Event, Phase, Pod, RunImage, Workload
from projects.services.secrets import set_project_secret
from scheduler.loop.commit.reservations import drop_stale_reservations
from scheduler.loop.dispatch import record_reports, start_pods
from scheduler.loop.dispatch.checkpoints import record_checkpoints
from scheduler.loop.dispatch.evictions.drains import evict_from_overdue_drains
from scheduler.loop.dispatch.lifecycle.limits import end_overdue_workloads
from scheduler.models import Eviction, Reservation
from scheduler.registries.base import RegistryError, RegistryErrorKind
from tests.harness.samples import sample
from tests.scheduler.stage import Stage
from tests.scheduler.tick_work.statements import (
    ONE_CPU,
    SIZES,
    Counts,
    assert_same,
    counted,
    large_node,
    logged,
    phases,
    rejecting,
    run_pending,
    submit_copies,
)

IMAGE = "ghcr.io/org/train:1"
DIGEST = f"sha256:{'1' * 64}"
BAD = "copy-1-of-3"


@pytest.fixture
def stage(stage: Stage) -> Stage:
    large_node(stage)
    return stage


@pytest.fixture
def runs_images(monkeypatch: pytest.MonkeyPatch) -> None:
    images = {"fake": Capabilities(runs_images=True)}
    monkeypatch.setattr(capabilities, "CAPABILITIES", {**capabilities.CAPABILITIES, **images})


def ids(workloads: Sequence[Workload]) -> list[UUID]:
    return [row.pk for row in workloads]


def rows(workloads: Sequence[Workload]) -> Any:
    return Workload.objects.filter(pk__in=ids(workloads))


def run_copies(stage: Stage, count: int, **changes: Any) -> list[Workload]:
    workloads = submit_copies(stage, count, **changes)
    run_pending(stage)
    assert phases(workloads) == {Phase.RUNNING}
    return workloads


def assert_constant(step: Callable[[int], Counts]) -> None:
    assert_same({size: step(size) for size in SIZES})


@pytest.mark.heavy
def test_statement_count_for_checkpoints_warnings_and_limits_does_not_grow_with_workloads(
    stage: Stage,
) -> None:
    def run(size: int) -> Counts:
        counts: Counts = {}
        workloads, now = run_copies(stage, 2 * size), stage.clock.now()
        overdue, idle = workloads[:size], workloads[size:]
        stage.runtime.checkpoints = {str(row.pk): now for row in overdue}
        with counted(counts, "checkpoints"):
            assert record_checkpoints(stage.loop.context) == size
        for pk in Pod.objects.filter(workload__in=overdue).values_list("pk", flat=True):
            stage.runtime.warn(str(pk), "a process was killed")
        with counted(counts, "observe"):
            record_reports(now, stage.loop.context)
        assert Event.objects.filter(kind="pod_warning", workload_id__in=ids(overdue)).count() == size
        rows(overdue).update(deadline=now)
        with counted(counts, "time limits"):
            assert end_overdue_workloads(now, stage.loop.context, stage.loop.idle) == size
        assert Pod.objects.filter(stop_reason="DeadlineExceeded", workload__in=overdue).count() == size
        rows(idle).update(idle_timeout=60)
        end_overdue_workloads(now, stage.loop.context, stage.loop.idle)
        stage.clock.advance(60)
        with counted(counts, "idle timeouts"):
            assert end_overdue_workloads(stage.clock.now(), stage.loop.context, stage.loop.idle) == size
        assert phases(workloads) == {Phase.STOPPING}
        stopping = Event.objects.filter(kind=Phase.STOPPING, workload_id__in=ids(workloads))
        assert stopping.count() == 2 * size
        return counts

    assert_constant(run)


def drain(stage: Stage, ordinal: int, count: int) -> list[Workload]:
    """Run copies of the workload on a separate node, and drain the node until the timeout has passed."""
    node = stage.node(ordinal, cpu_milli=count * 1000, memory_mib=1_000_000, max_pods=200)
    label = {"berth.dev/node": node.name}
    Node.objects.filter(pk=node.pk).update(labels=label)
    workloads = run_copies(stage, count, roles=[{**ONE_CPU[0], "node_selector": label}])
    drain_node(actor=stage.cast.alice, node=node, reason="new disks")
    Node.objects.filter(pk=node.pk).update(drain_started_at=stage.clock.now())
    stage.clock.advance(node.pool.drain_timeout + 1)
    return workloads


def test_statement_count_for_drains_does_not_grow_with_workloads(stage: Stage) -> None:
    def run(size: int) -> Counts:
        counts: Counts = {}
        workloads = drain(stage, 100 + size, size)
        with counted(counts, "drains"):
            assert evict_from_overdue_drains(stage.clock.now(), stage.loop.context) == size
        assert phases(workloads) == {Phase.STOPPING}
        assert Eviction.objects.filter(kind="drain", workload_id__in=ids(workloads)).count() == size
        return counts

    assert_constant(run)


def reserve(stage: Stage, workloads: Sequence[Workload], **changes: Any) -> None:
    rows(workloads).update(phase=Phase.RESERVED)
    node, now = Node.objects.get(ordinal=2), stage.clock.now()
    values = {"role": "worker", "index": 0, "node": node, "devices": [], "since": now, **changes}
    Reservation.objects.bulk_create(Reservation(workload=row, **values) for row in workloads)


def test_statement_count_for_reservations_does_not_grow_with_workloads(stage: Stage) -> None:
    def run(size: int) -> Counts:
        counts: Counts = {}
        workloads = submit_copies(stage, size, preemptible=False)
        now = stage.clock.now()
        reserve(stage, workloads, expires_at=now + timedelta(seconds=1))
        with counted(counts, "kept"):
            assert drop_stale_reservations(now, stage.loop.context) == 0
        with counted(counts, "dropped"):
            assert drop_stale_reservations(now + timedelta(seconds=1), stage.loop.context) == size
        assert phases(workloads) == {Phase.PENDING}
        rows(workloads).delete()
        return counts

    assert_constant(run)


@pytest.mark.heavy
@pytest.mark.parametrize(
    "changes",
    sample(
        [
            {
                "kind": "service",
                "roles": [{"name": "engine", "replicas": 1, "cpu": 1}],
                "service": {"role": "engine", "engine": "openai", "model_name": "chat"},
            },
            {"kind": "interactive", "ports": [{"name": "http"}]},
        ],
        1,
    ),
)
def test_statement_count_for_addresses_and_start_failures_does_not_grow_with_workloads(
    stage: Stage, changes: dict[str, Any]
) -> None:
    def run(size: int) -> Counts:
        counts: Counts = {}
        now, context = stage.clock.now(), stage.loop.context
        workloads = submit_copies(stage, size, **changes)
        view = stage.loop.observe(now, TIMEOUT)
        stage.loop.commit(view, stage.loop.decide(view))
        rows(workloads).update(rendezvous=None)
        stage.runtime.next("start", *(RuntimeFailure("the disk is full") for _ in workloads))
        with counted(counts, "dispatch"):
            assert len(start_pods(now, context)) == 1
        pods = Pod.objects.filter(workload__in=workloads, message__contains="the disk is full")
        column = "endpoint" if changes["kind"] == "service" else "ports"
        assert pods.filter(**{f"{column}__isnull": False}, workload__rendezvous__isnull=False).count() == size
        rows(workloads).delete()
        return counts

    assert_constant(run)


@pytest.mark.heavy
def test_statement_count_for_secrets_does_not_grow_with_pods(stage: Stage) -> None:
    content = SecretContent("s3cret")
    set_project_secret(
        actor=stage.cast.alice, project=stage.cast.vision, name="key", content=content, at=stage.clock.now()
    )

    def run(size: int) -> Counts:
        counts: Counts = {}
        workloads = submit_copies(stage, size, secrets=[{"name": "key", "env": "KEY"}])
        view = stage.loop.observe(stage.clock.now(), TIMEOUT)
        stage.loop.commit(view, stage.loop.decide(view))
        with counted(counts, "start"):
            assert start_pods(stage.clock.now(), stage.loop.context) == []
        orders = [stage.runtime.order(str(pod.pk)) for pod in Pod.objects.filter(workload__in=workloads)]
        assert [order.secret_env["KEY"] for order in orders] == ["s3cret"] * size
        return counts

    assert_constant(run)


@pytest.mark.heavy
def test_statement_count_for_scale_up_does_not_grow_with_workloads(stage: Stage) -> None:
    def run(size: int) -> Counts:
        counts: Counts = {}
        node = stage.node(100 + size, cpu_milli=size * 1000, memory_mib=1_000_000, max_pods=200)
        label = {"berth.dev/node": node.name}
        Node.objects.filter(pk=node.pk).update(labels=label)
        role = {"name": "worker", "min": 1, "max": 2, "cpu": 1, "node_selector": label}
        workloads = run_copies(stage, size, roles=[role])
        Node.objects.filter(pk=node.pk).update(cpu_milli=2 * size * 1000)
        view = stage.loop.observe(stage.clock.now(), TIMEOUT)
        plan = stage.loop.decide(view)
        with counted(counts, "commit"):
            stage.loop.commit(view, plan)
        pods = Pod.objects.filter(workload__in=workloads)
        assert set(pods.values_list("index", "rank")) == {(0, 0), (1, 1)}
        assert pods.count() == 2 * size
        return counts

    assert_constant(run)


@override_settings(BERTH_SENDS_MAIL=True)
def test_statement_count_does_not_grow_with_unschedulable_workloads(stage: Stage) -> None:
    def run(size: int) -> Counts:
        counts: Counts = {}
        workloads = submit_copies(stage, size, roles=[{**ONE_CPU[0], "cpu": 10_000}])
        view = stage.loop.observe(stage.clock.now(), TIMEOUT)
        stage.loop.commit(view, stage.loop.decide(view))
        with counted(counts, "record"):
            assert any([*stage.loop._record_cycles()])
        assert set(rows(workloads).values_list("reason", flat=True)) == {"Unschedulable"}
        assert Event.objects.filter(kind="unschedulable", workload_id__in=ids(workloads)).count() == size
        mails = Delivery.objects.filter(kind="unschedulable", to="alice@example.org")
        assert mails.filter(workload_id__in=ids(workloads)).count() == size
        rows(workloads).delete()
        return counts

    stage.tick()  # records the earlier cycles
    assert_constant(run)


@pytest.mark.heavy
def test_statement_count_for_images_does_not_grow_with_workloads(stage: Stage, runs_images: None) -> None:
    def run(size: int) -> Counts:
        counts: Counts = {}
        stage.registries.digests = {}
        workloads, context = submit_copies(stage, size, image=IMAGE), stage.loop.context
        view = stage.loop.observe(stage.clock.now(), TIMEOUT)
        stage.loop.commit(view, stage.loop.decide(view))
        answers: dict[str, str | RegistryError | None] = {
            "unanswered": None,
            "unreachable": RegistryError(RegistryErrorKind.UNREACHABLE, "The registry does not respond."),
            "repeated": None,
            "missing": RegistryError(RegistryErrorKind.NOT_FOUND, "There is no such image."),
        }
        for step, answer in answers.items():
            stage.registries.digests = {} if answer is None else {IMAGE: answer}
            stage.clock.advance(60)
            with counted(counts, step):
                start_pods(stage.clock.now(), context)
        assert phases(workloads) == {Phase.STOPPING}
        assert RunImage.objects.filter(workload__in=workloads, attempts=2).count() == size
        return counts

    assert_constant(run)


def test_workload_that_cannot_be_ended_does_not_block_ending_other_workloads(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    workloads, now = run_copies(stage, 3), stage.clock.now()
    rows(workloads).update(deadline=now)
    with rejecting("projects_workload", f"name <> '{BAD}' OR phase <> 'stopping'"):
        assert end_overdue_workloads(now, stage.loop.context, stage.loop.idle) == 2
    assert set(rows(workloads).filter(phase=Phase.RUNNING).values_list("name", flat=True)) == {BAD}
    assert logged(caplog, "could not be ended")
    assert Event.objects.filter(kind=Phase.STOPPING, workload_id__in=ids(workloads)).count() == 2
    assert end_overdue_workloads(now, stage.loop.context, stage.loop.idle) == 1


def test_workload_that_cannot_be_drained_does_not_block_other_drains(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    workloads = drain(stage, 100, 3)
    with rejecting("scheduler_eviction", f"workload_name <> '{BAD}'"):
        assert evict_from_overdue_drains(stage.clock.now(), stage.loop.context) == 2
    assert set(rows(workloads).filter(phase=Phase.RUNNING).values_list("name", flat=True)) == {BAD}
    assert logged(caplog, "could not be evicted")
    assert evict_from_overdue_drains(stage.clock.now(), stage.loop.context) == 1


def test_reservation_that_cannot_be_dropped_does_not_block_dropping_other_reservations(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    workloads, now = submit_copies(stage, 3), stage.clock.now()
    reserve(stage, workloads, expires_at=now)
    with rejecting("projects_workload", f"name <> '{BAD}' OR phase <> 'pending'"):
        assert drop_stale_reservations(now, stage.loop.context) == 2
    assert Reservation.objects.get().workload.name == BAD
    assert logged(caplog, "could not be dropped")
    assert drop_stale_reservations(now, stage.loop.context) == 1


@pytest.mark.heavy
def test_start_failure_that_cannot_be_stored_does_not_block_other_starts(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    workloads = submit_copies(stage, 3)
    failures = ["the disk is full", "NUL \0 is not text", "the disk is full"]
    stage.runtime.next("start", *map(RuntimeFailure, failures))
    stage.loop.tick(reconcile=False)
    messages = Pod.objects.filter(workload__in=workloads).values_list("message", flat=True)
    assert sorted(messages) == ["", *[f"could not be started yet: {failures[0]}"] * 2]
    assert logged(caplog, "could not be written")


@pytest.mark.heavy
def test_image_that_cannot_be_recorded_does_not_block_other_images(
    stage: Stage, runs_images: None, caplog: pytest.LogCaptureFixture
) -> None:
    stage.registries.digests = {IMAGE: DIGEST}
    workloads = submit_copies(stage, 3, image=IMAGE)
    bad = next(row for row in workloads if row.name == BAD)
    with rejecting("projects_runimage", f"workload_id <> '{bad.pk}'"):
        stage.loop.tick(reconcile=False)  # requests the digest
        run_pending(stage)
        assert set(rows(workloads).exclude(phase=Phase.RUNNING).values_list("name", flat=True)) == {BAD}
    assert logged(caplog, "could not be recorded")
    run_pending(stage)
    assert phases(workloads) == {Phase.RUNNING}
