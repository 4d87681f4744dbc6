"""Tests that caches between ticks do not change any decision.

Each day is random: users submit, cancel, suspend and resume, pods end and fail, admins edit quotas and nodes,
rows are edited directly in the database, and leadership changes. In each cycle, the snapshot read with the
cache must equal a full snapshot, and the plan must equal a new decision.
"""

import contextlib
import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from berth.core.errors import BerthError
from pools.models import Node, NodePool
from projects.models import Phase, Pod, Project, Quota, Workload
from projects.services.workloads import control
from scheduler.engine.decide import decide
from scheduler.engine.layout.layout import Layout
from scheduler.engine.model import Snapshot
from scheduler.engine.plan import Plan
from scheduler.loop import decide as deciding
from scheduler.loop import tick
from scheduler.loop.observe import specs
from scheduler.loop.observe import view as observe
from scheduler.loop.observe.live_workloads import LiveWorkloads
from scheduler.loop.observe.specs import SpecCache
from scheduler.models import Allocation
from tests.scheduler.stage import Stage

STEPS = 30
SHAPES: list[list[dict[str, Any]]] = [
    [{"name": "worker", "replicas": 1, "gpu": 1}],
    [{"name": "worker", "replicas": 2, "gpu": 1}],
    [{"name": "worker", "replicas": 1, "gpu": 0.5}],
    [{"name": "worker", "min": 1, "max": 3, "gpu": 1}],
    [{"name": "lead", "replicas": 1}, {"name": "worker", "replicas": 1, "gpu": 2}],
]


class Day:
    def __init__(self, stage: Stage, seed: int) -> None:
        self.stage, self.chance, self.submitted = stage, random.Random(seed), 0
        self.ordinals = 2

    def apply_random_event(self) -> None:
        for _ in range(self.chance.randint(0, 3)):
            name = self.chance.choice([method for method in dir(self) if method.startswith("do_")])
            getattr(self, name)()
        self.stage.clock.advance(self.chance.choice([0.2, 1, 7, 45, 400]))

    def do_submit(self) -> None:
        self.submitted += 1
        cast = self.stage.cast
        more: dict[str, Any] = {}
        if self.submitted > 1 and self.chance.random() < 0.2:
            more["after"] = [{"workload": f"w{self.chance.randrange(1, self.submitted)}"}]
        if self.chance.random() < 0.3:
            more["preemption_delay"] = 30
        with contextlib.suppress(BerthError):  # the awaited workload may have failed
            self.stage.submit(
                f"w{self.submitted}", project=self.chance.choice([cast.vision, cast.speech, cast.ads]),
                roles=self.chance.choice(SHAPES), priority=self.chance.choice([50, 60, 70]),
                preemptible=self.chance.random() < 0.7, **more,
            )  # fmt: skip

    do_submit_another = do_submit_a_third = do_submit

    def _pick_workload(self, *phases: str) -> Workload | None:
        rows = list(Workload.objects.filter(phase__in=phases).order_by("submitted_at", "name"))
        return self.chance.choice(rows) if rows else None

    def _call(self, service: Callable[..., Any], *phases: str) -> None:
        row = self._pick_workload(*phases)
        if row is not None:
            with contextlib.suppress(BerthError):
                service(actor=self.stage.cast.alice, workload=row, now=self.stage.clock.now())

    def do_cancel(self) -> None:
        self._call(control.cancel, Phase.PENDING, Phase.RUNNING, Phase.RESERVED)

    def do_suspend(self) -> None:
        self._call(control.suspend, Phase.PENDING, Phase.RUNNING)

    def do_resume(self) -> None:
        self._call(control.resume, Phase.SUSPENDED)

    def _end_a_pod(self, exit_code: int) -> None:
        pods = list(Pod.objects.filter(state="running").order_by("created_at", "rank"))
        if pods:
            self.stage.runtime.end(str(self.chance.choice(pods).pk), exit_code=exit_code)

    def do_end(self) -> None:
        self._end_a_pod(0)

    do_end_another = do_end

    def do_fail(self) -> None:
        self._end_a_pod(1)

    def do_save(self) -> None:
        row = self._pick_workload(Phase.RUNNING)
        if row is not None:
            self.stage.runtime.checkpoints[str(row.pk)] = self.stage.clock.now()

    def do_edit_a_quota(self) -> None:
        row = Quota.objects.order_by("pk").all()[self.chance.randrange(Quota.objects.count())]
        row.gpu_milli, row.limit_gpu_milli = self.chance.choice([(0, None), (2000, 4000), (5000, None)])
        row.version += 1
        row.save()

    def do_make_a_quota(self) -> None:
        owner = self.chance.choice([self.stage.cast.speech, self.stage.cast.ads, self.stage.cast.product])
        column = "project" if isinstance(owner, Project) else "department"
        if not Quota.objects.filter(**{column: owner}).exists():
            self.stage.quota(owner, 2)

    def do_bring_a_node(self) -> None:
        if self.ordinals < 9:
            self.stage.node(self.ordinals, state=self.chance.choice(["ready", "booting"]))
            self.ordinals += 1

    def do_change_a_node(self) -> None:
        row = self.chance.choice(list(Node.objects.order_by("name")))
        state = self.chance.choice(["ready"] * 6 + ["cordoned", "lost", "draining"])
        started = self.stage.clock.now() if state == "draining" else None
        Node.objects.filter(pk=row.pk).update(state=state, drain_started_at=started)

    def do_edit_the_pool(self) -> None:
        mode = self.chance.choice(["time_based", "point_in_time"])
        NodePool.objects.filter(name="local").update(fairshare_mode=mode, half_life=600)

    def do_edit_a_row_by_hand(self) -> None:
        row = self._pick_workload(Phase.PENDING, Phase.RUNNING)
        if row is not None:
            later = self.stage.clock.now() + timedelta(seconds=20)
            columns: dict[str, Any] = self.chance.choice(
                [{"priority": 90}, {"backoff_until": later}, {"stale_since": later}, {"max_runtime": 5000}]
            )
            Workload.objects.filter(pk=row.pk).update(**columns)

    def do_lose_an_allocation(self) -> None:
        row = Allocation.objects.filter(released_at=None).order_by("bound_at", "pk").first()
        if row is not None and self.chance.random() < 0.2:
            Allocation.objects.filter(pk=row.pk).update(devices=[0], gpu_milli=500)

    def do_change_leader(self) -> None:
        self.stage.loop = self.stage.new_loop("first")

    def do_nothing(self) -> None:
        pass


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.heavy) for seed in range(1, 20))])
def test_plan_does_not_depend_on_caches(stage: Stage, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong: list[str] = []  # collect the differences, because the loop continues after an error
    used_cache: list[bool] = []

    def observe_twice(
        now: Any, specs: SpecCache, cache: observe.ObservationCache, *, has_reservations: bool
    ) -> observe.ClusterView:
        view = observe.observe(now, specs, cache, has_reservations=has_reservations)
        if view != observe.observe(now, SpecCache()):
            wrong.append(f"the cached view differed at {now}")
        return view

    def decide_twice(snapshot: Snapshot, cache: deciding.LayoutCache) -> Plan:
        used_cache.append(cache.layout is not None)
        plan = deciding.decide_pools(snapshot, cache)
        if plan != decide(snapshot) or not isinstance(cache.layout, Layout):
            wrong.append(f"another plan at {snapshot.now}")
        return plan

    monkeypatch.setattr(tick, "observe", observe_twice)
    monkeypatch.setattr(tick, "decide_pools", decide_twice)
    day = Day(stage, seed)
    for _ in range(STEPS):
        day.apply_random_event()
        stage.loop.tick()
    assert wrong == []
    assert sum(used_cache) > STEPS // 2
    assert Workload.objects.filter(run__gt=0).exists()


def test_changes_read_in_a_failed_observation_are_not_lost(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A new and an ended workload are both in the view after the database has interrupted an observation.
    ended = stage.submit("ended")
    now, cache = stage.clock.now(), observe.ObservationCache()
    observe.observe(now, SpecCache(), cache)
    control.cancel(actor=stage.cast.alice, workload=ended, now=now)
    stage.submit("new")
    with monkeypatch.context() as patch:
        patch.setattr(specs, "_read_documents", lambda ids: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            observe.observe(now, SpecCache(), cache)
    view = observe.observe(now, SpecCache(), cache)
    assert view.workloads.keys() == {"vision/new"}
    assert view == observe.observe(now, SpecCache())


def test_workload_that_ended_before_a_failed_observation_is_removed_from_the_view(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.submit("train")
    stage.tick()
    Pod.objects.update(state="succeeded", ended_at=stage.clock.now())
    now, cache = stage.clock.now(), observe.ObservationCache()
    assert observe.observe(now, SpecCache(), cache).pods
    Workload.objects.update(phase=Phase.COMPLETED, ended_at=now)
    with monkeypatch.context() as patch:
        patch.setattr(LiveWorkloads, "read_pods", lambda live: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            observe.observe(now, SpecCache(), cache)
    view = observe.observe(now, SpecCache(), cache)
    assert view == observe.observe(now, SpecCache())
    assert not view.pods
