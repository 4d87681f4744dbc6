"""Tests that a tick does a bounded amount of work and that later ticks do the rest."""

import pytest
from django.db.models import F

from pools.runtimes.base import PodSpec, RuntimeFailure
from projects.models import Event, Phase, Pod, PodState, Workload
from scheduler.engine.plan import Plan
from scheduler.loop import cycle_record, tick
from scheduler.loop.cycle_record import RunInterval
from scheduler.models import Cycle
from scheduler.reports.explanations import writer
from scheduler.reports.replay import replay
from tests.scheduler.stage import NOON, Stage
from tests.scheduler.tick_work.sizes import fix_tick_size
from tests.scheduler.tick_work.statements import phases, submit_copies
from tests.support.present import present

COUNT, MOST = 5, 2
TWO_GPUS = {"name": "worker", "replicas": 1, "gpu": 2}


@pytest.fixture
def stage(stage: Stage) -> Stage:
    stage.node(2, cpu_milli=200_000, memory_mib=1_000_000)
    return stage


def live(state: str) -> int:
    return Pod.objects.filter(state=state).count()


def submit_queue(stage: Stage, prefix: str = "w") -> None:
    """Submit more workloads with two GPUs each than fit on the nodes."""
    for number in range(2 * COUNT):
        stage.submit(f"{prefix}{number}", project=stage.cast.speech, roles=[TWO_GPUS])


def start_before_a_saturated_tick(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> list[Workload]:
    """Start workloads in one tick, and make the next tick saturated."""
    fix_tick_size(stage, monkeypatch, COUNT)
    workloads = submit_copies(stage, COUNT)
    stage.loop.tick()
    stage.loop.context.size.is_saturated = True
    return workloads


def test_bundles_beyond_the_maximum_are_committed_in_later_ticks(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    fix_tick_size(stage, monkeypatch, MOST)
    submit_copies(stage, COUNT)
    for started in (2, 4, 5):
        stage.loop.tick()
        assert Workload.objects.exclude(phase=Phase.PENDING).count() == started
        assert stage.loop.has_more == (started < COUNT)


@pytest.mark.heavy
def test_stale_bundles_do_not_block_later_bundles(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    fix_tick_size(stage, monkeypatch, MOST)
    workloads = submit_copies(stage, COUNT)
    now = stage.clock.now()
    view = stage.loop.observe(now)
    first = {bundle.workload for bundle in present(stage.loop.decide(view)).bundles[:MOST]}
    stale = [row.pk for row in workloads if row.handle in first]

    def change_first(*arguments: object) -> dict[str, object]:
        Workload.objects.filter(pk__in=stale).update(priority=60)
        for pk in stale:
            row = Workload.objects.get(pk=pk)
            Workload.objects.filter(pk=pk).update(version=row.version + 1)
        return {}

    monkeypatch.setattr(tick, "rendezvous_for_plan", change_first)
    for _ in range(4):
        stage.loop.tick()
    assert set(Workload.objects.filter(phase=Phase.PENDING).values_list("pk", flat=True)) == set(stale)


def test_starts_beyond_the_maximum_are_dispatched_in_later_ticks(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    fix_tick_size(stage, monkeypatch, MOST)
    submit_copies(stage, COUNT)
    for started in (2, 4, 5):
        stage.loop.tick()
        assert len(stage.runtime.running()) == started
        assert stage.loop.has_more == (started < COUNT)


@pytest.mark.heavy
def test_pods_that_cannot_start_do_not_block_other_pods(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    fix_tick_size(stage, monkeypatch, MOST)
    submit_copies(stage, COUNT)
    stage.runtime.next("start", RuntimeFailure("no"), RuntimeFailure("no"))
    for _ in range(3):
        stage.loop.tick()
    assert len(stage.runtime.running()) >= COUNT - MOST


@pytest.mark.heavy
def test_failed_pod_starts_are_retried_in_turn(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    fix_tick_size(stage, monkeypatch, MOST)
    workloads = submit_copies(stage, COUNT)
    stage.runtime.next("start", *[RuntimeFailure("no")] * 3 * MOST)
    broken = {str(row.pk) for row in sorted(workloads, key=lambda row: row.pk)[:MOST]}
    start = stage.runtime.start

    def start_unless_broken(order: PodSpec) -> None:
        if str(Pod.objects.get(pk=order.pod_id).workload_id) in broken:
            raise RuntimeFailure("broken")
        start(order)

    stage.tick(3, seconds=1)
    monkeypatch.setattr(stage.runtime, "start", start_unless_broken)
    stage.tick(COUNT, seconds=1)
    assert len(stage.runtime.running()) == COUNT - MOST


@pytest.mark.heavy
def test_failed_commit_is_not_repeated_immediately(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    fix_tick_size(stage, monkeypatch, MOST)
    monkeypatch.setattr(tick, "rendezvous_for_plan", lambda *arguments: 1 / 0)
    submit_copies(stage, COUNT)
    stage.loop.tick()
    assert stage.loop.must_retry
    assert not stage.loop.has_more


@pytest.mark.heavy
def test_pod_reports_of_one_workload_are_recorded_in_one_tick(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    gang = stage.submit("gang", roles=[{"name": "worker", "replicas": COUNT, "gpu": 1}])
    stage.tick(2)
    fix_tick_size(stage, monkeypatch, MOST, changes_per_start=1)
    stage.finish(gang)
    stage.loop.tick()
    assert stage.phase(gang) == Phase.COMPLETED
    assert not stage.loop.has_more


def test_pod_reports_beyond_the_maximum_are_recorded_in_later_ticks(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    workloads = submit_copies(stage, COUNT)
    stage.tick(2)
    assert live(PodState.RUNNING) == COUNT
    fix_tick_size(stage, monkeypatch, MOST, changes_per_start=1)
    for row in workloads:
        stage.finish(row)
    for running in (3, 1, 0):
        stage.loop.tick()
        assert live(PodState.RUNNING) == running
        assert stage.loop.has_more == (running > 0)
    assert phases(workloads) == {Phase.COMPLETED}


def test_saturated_tick_records_a_new_start_one_tick_later(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    workloads = start_before_a_saturated_tick(stage, monkeypatch)
    stage.loop.tick()
    assert live(PodState.RUNNING) == 0
    assert stage.loop.has_more, "the next tick must record the starts"
    stage.loop.tick()
    assert live(PodState.RUNNING) == COUNT
    assert phases(workloads) == {Phase.RUNNING}
    assert not stage.loop.has_more
    starts = [pod for call, pod in stage.runtime.calls if call == "start"]
    assert len(starts) == COUNT, "no pod is started twice"


def test_start_and_end_of_a_short_run_are_recorded_together(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    workloads = start_before_a_saturated_tick(stage, monkeypatch)
    stage.clock.advance(1)
    stage.loop.tick()
    for row in workloads:
        for pod in stage.pods(row):
            stage.runtime.end(str(pod.pk), exit_code=0)
    stage.clock.advance(2)
    stage.loop.tick()
    assert phases(workloads) == {Phase.COMPLETED}
    for row in workloads:
        row.refresh_from_db()
        assert row.started_at == stage.pods(row)[0].started_at
        assert present(row.ended_at) > present(row.started_at)
        events = Event.objects.filter(workload_id=row.pk).order_by("pk").values_list("kind", flat=True)
        assert list(events)[-3:] == ["starting", "running", "completed"]


def test_postponed_start_is_recorded_even_if_later_changes_exceed_the_maximum(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit_copies(stage, COUNT)
    stage.loop.tick()
    fix_tick_size(stage, monkeypatch, MOST, changes_per_start=1)
    stage.loop.context.size.is_saturated = True
    for running in (0, 2, 4, 5):
        stage.loop.tick()
        assert live(PodState.RUNNING) == running


@pytest.mark.heavy
def test_explanations_are_written_in_batches(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "BATCH_SIZE", MOST)
    submit_queue(stage)
    stage.tick()
    pending = Workload.objects.filter(phase=Phase.PENDING)
    assert pending.count() > MOST
    assert not pending.filter(explained_at=None).exists()


@pytest.mark.heavy
def test_workload_that_has_run_since_its_last_explanation_is_explained_again(stage: Stage) -> None:
    submit_queue(stage)
    stage.tick(2)
    pending = Workload.objects.filter(phase=Phase.PENDING)
    row = pending.order_by("-submitted_at")[0]
    assert row.explanation is not None
    pending.filter(pk=row.pk).update(run=1, version=row.version + 3, explanation=None, explained_at=None)
    stage.tick()
    row.refresh_from_db()
    assert row.explanation is not None


@pytest.mark.heavy
def test_pending_reasons_that_cannot_be_recorded_are_retried_later(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload = stage.submit("large", roles=[{"name": "worker", "replicas": 1, "cpu": 10_000}])
    with monkeypatch.context() as patch:
        patch.setattr(cycle_record, "settle_due_usage_ledgers", lambda now, held: 1 / 0)
        stage.tick()
    workload.refresh_from_db()
    assert workload.explanation is None
    stage.tick()
    workload.refresh_from_db()
    assert workload.explanation is not None


@pytest.mark.heavy
def test_queue_positions_are_updated_in_batches(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "MAX_UPDATES", 2)
    submit_queue(stage)
    stage.tick(2 * COUNT)
    pending = Workload.objects.filter(phase=Phase.PENDING).order_by("explanation__queue_position")
    head, *others = pending
    assert len(others) > 3
    Workload.objects.filter(pk=head.pk).update(phase=Phase.CANCELLED, ended_at=stage.clock.now())
    before = stage.clock.now()
    stage.clock.advance(1)
    stage.tick()
    explained = set(pending.filter(explained_at__gt=before))
    assert explained
    assert explained <= set(others[:3])  # the new head may have new reasons, and two get new numbers
    stage.tick(len(others))
    positions = [row.explanation["queue_position"] for row in pending.all() if row.explanation]
    assert positions == [*range(1, len(others) + 1)]


@pytest.mark.heavy
def test_stale_bundles_are_retried_in_turn(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    fix_tick_size(stage, monkeypatch, MOST)
    workloads = submit_copies(stage, COUNT)
    tried: list[set[str]] = []

    def change_all(view: object, part: Plan, *arguments: object) -> dict[str, object]:
        tried.append({bundle.workload for bundle in part.bundles})
        Workload.objects.filter(phase=Phase.PENDING).update(version=F("version") + 1)
        return {}

    monkeypatch.setattr(tick, "rendezvous_for_plan", change_all)
    for _ in range(COUNT):
        stage.loop.tick()
        stage.clock.advance(1)
    assert set.union(*tried[:3]) == {row.handle for row in workloads}
    assert set.union(*tried[3:]) == set.union(*tried[:2])
    assert phases(workloads) == {Phase.PENDING}


def test_reasons_and_snapshots_of_long_queues_are_computed_in_batches(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit_queue(stage)
    stage.loop.tick(reconcile=False)
    whole = len([*stage.loop.reconcile_steps()])
    submit_queue(stage, "x")
    monkeypatch.setattr(cycle_record, "PART_SIZE", MOST)
    stage.loop.tick(reconcile=False)
    assert len([*stage.loop.reconcile_steps()]) >= whole + 2 * (2 * COUNT // MOST)
    cycle = Cycle.objects.order_by("-pk")[0]
    assert not Workload.objects.filter(phase=Phase.PENDING, explained_at=None).exists()
    assert replay(cycle).identical


@pytest.mark.heavy
def test_long_queues_are_explained_less_often(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cycle_record, "FREE_SIZE", 1)
    stage.loop.memory.explained = RunInterval(per_second=1)
    submit_queue(stage)
    stage.tick()
    last = stage.submit("last", project=stage.cast.speech, roles=[TWO_GPUS])
    stage.tick()
    last.refresh_from_db()
    assert last.explained_at is None
    stage.clock.advance(2 * COUNT)
    stage.tick()
    last.refresh_from_db()
    assert last.explained_at == stage.clock.now()


def test_small_cluster_is_snapshotted_in_every_cycle() -> None:
    pace = RunInterval(per_second=1)
    assert all(pace.is_due(cycle_record.FREE_SIZE, NOON) for _ in range(3))
