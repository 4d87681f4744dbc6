"""Tests for edits of workloads between and during decisions."""

import pytest

from projects.models import Workload
from projects.services import workloads
from scheduler.engine.decide import decide_with_layout
from scheduler.engine.layout.layout import Layout
from scheduler.engine.model import Snapshot
from scheduler.engine.plan import Plan
from scheduler.loop import decide as deciding
from scheduler.loop.observe.live_rows import WORKLOADS
from scheduler.loop.observe.mirror import Mirror
from tests.scheduler.stage import Stage
from tests.support.present import present


def edit(stage: Stage, workload: Workload, **patch: object) -> None:
    workloads.edit(actor=stage.cast.alice, workload=workload, patch=patch, now=stage.clock.now())
    stage.clock.advance(1)


def roles(gpus: int, replicas: int = 1) -> list[dict[str, object]]:
    return [{"name": "worker", "replicas": replicas, "gpu": gpus}]


def fill(stage: Stage) -> Workload:
    blocker = stage.submit("blocker", roles=roles(2, 2), priority=100)
    stage.tick(2)
    assert stage.phase(blocker) == "running"
    return blocker


def queued(stage: Stage) -> list[str]:
    rows = Workload.objects.filter(phase="pending")
    return [row.name for row in sorted(rows, key=lambda row: present(row.explanation)["queue_position"])]


def test_raised_priority_moves_a_workload_to_the_front(stage: Stage) -> None:
    fill(stage)
    for name in ("first", "second", "third"):
        stage.submit(name)
    stage.tick()
    assert queued(stage) == ["first", "second", "third"]
    edit(stage, Workload.objects.get(name="third"), priority=60)
    stage.tick()
    assert queued(stage) == ["third", "first", "second"]


def test_edit_keeps_the_queue_position_unless_it_increases_the_request(stage: Stage) -> None:
    fill(stage)
    for name in ("first", "second", "third"):
        stage.submit(name)
    stage.tick()
    edit(stage, Workload.objects.get(name="first"), roles=roles(1, 3))
    edit(stage, Workload.objects.get(name="second"), roles=roles(1))
    stage.tick()
    assert queued(stage) == ["second", "third", "first"]


def test_next_cycle_uses_the_edited_document(stage: Stage) -> None:
    blocker = fill(stage)
    waiting = stage.submit("waiting", roles=roles(1, 2))
    stage.tick()
    edit(stage, waiting, roles=roles(2, 1), command="echo edited")
    stage.finish(blocker)
    stage.tick(3)
    assert stage.phase(waiting) == "running"
    (pod,) = stage.pods(waiting)
    assert pod.allocation.gpu_milli * len(pod.allocation.devices) == 2000
    order = stage.runtime.order(str(pod.pk))
    assert "echo edited" in " ".join(order.command)


def test_decision_made_before_a_concurrent_edit_is_dropped(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = stage.submit("waiting", roles=roles(1, 2))

    def edit_meanwhile(snapshot: Snapshot, layout: Layout | None) -> tuple[Plan, Layout]:
        decision = decide_with_layout(snapshot, layout)
        if Workload.objects.get(pk=waiting.pk).edits == 0:
            edit(stage, waiting, roles=roles(2, 1))
        return decision

    monkeypatch.setattr(deciding, "decide_with_layout", edit_meanwhile)
    stage.tick(4)
    assert stage.phase(waiting) == "running"
    (pod,) = stage.pods(waiting)
    assert len(pod.allocation.devices) == 2


def test_mirror_detects_an_edit_that_changes_only_the_document(stage: Stage) -> None:
    workload = stage.submit("waiting")
    mirror = Mirror(WORKLOADS)
    mirror.read()
    edit(stage, workload, env={"EPOCHS": "3"})
    assert mirror.read() == {workload.pk}
