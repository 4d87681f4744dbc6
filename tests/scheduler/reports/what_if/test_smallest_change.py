"""Tests for the smallest change that would start a pending workload, as each user sees it."""

from typing import Any

import pytest

from pools.models import Node, NodePool
from projects.models import Quota, Workload
from scheduler.engine.smallest_change import search
from scheduler.reports.visibility import UNRESTRICTED, viewer_for
from scheduler.reports.what_if import smallest_change as report
from scheduler.reports.what_if.smallest_change import RenderedChange, find_smallest_change
from tests.scheduler.stage import Stage

ONE = [{"name": "worker", "replicas": 1, "gpu": 1}]
FOUR = [{"name": "worker", "replicas": 4, "gpu": 1}]
ZONE = {"zone": "a"}


@pytest.fixture
def held(stage: Stage) -> Stage:
    """Create nodes that are held by another department and cannot be replaced by new ones."""
    cast = stage.cast
    Node.objects.update(labels=ZONE)  # new nodes of the pool have no labels
    cast.research.quotas.update(gpu_milli=0)
    cast.vision.quotas.update(gpu_milli=0)
    stage.quota(cast.product, 4)
    stage.quota(cast.ads, 4)
    stage.submit("secret-bid", cast.ads, roles=FOUR)
    stage.tick(2, seconds=10)
    return stage


def pending(stage: Stage, name: str = "train", **changes: Any) -> Workload:
    workload = stage.submit(name, **{"roles": [{**ONE[0], "node_selector": ZONE}], **changes})
    stage.tick()
    workload.refresh_from_db()
    assert workload.phase == "pending"
    return workload


def ask(stage: Stage, workload: Workload, who: str = "dave") -> RenderedChange:
    return find_smallest_change(workload, viewer_for(stage.cast.people[who]), now=stage.clock.now())


def test_suggestion_hides_the_name_of_another_projects_workload(held: Stage) -> None:
    workload = pending(held)
    answer = ask(held, workload)
    assert answer.sentence == "The workload would start now if a workload of another project ended."
    assert answer.change is not None
    assert answer.change["subject"] == "a workload of another project"
    assert "secret-bid" not in repr(answer)


def test_suggestion_for_platform_admins_names_the_workload(held: Stage) -> None:
    workload = pending(held)
    sentence = "The workload would start now if ads/secret-bid ended."
    answer = ask(held, workload, "alice")
    assert (answer.sentence, answer.affected) == (sentence, ("ads/secret-bid",)), (
        "the page links the workload"
    )
    assert find_smallest_change(workload, UNRESTRICTED, now=held.clock.now()).sentence == sentence


def test_suggested_quota_starts_the_workload_in_the_next_cycle(stage: Stage) -> None:
    cast = stage.cast
    Quota.objects.filter(project=cast.vision).update(gpu_milli=0, over_quota=False)
    workload = pending(stage, roles=ONE)
    answer = ask(stage, workload)
    assert answer.sentence == (
        "The workload would start now if project vision had a quota of 1 GPU instead of 0."
    )
    assert answer.change == {
        "kind": "quota_raised", "subject": "vision", "resource": "gpu", "pool": "local",
        "before": 0, "after": 1,
    }  # fmt: skip
    Quota.objects.filter(project=cast.vision).update(gpu_milli=1000)
    stage.tick()
    assert stage.phase(workload) == "starting"


@pytest.mark.heavy
def test_suggestion_names_the_visible_victims(stage: Stage) -> None:
    cast = stage.cast
    stage.submit("borrows", cast.ads, roles=FOUR)
    stage.tick(2, seconds=10)
    Quota.objects.filter(project=cast.vision).update(gpu_milli=0, weight_gpu=0)
    workload = pending(stage, roles=ONE)
    change = "The workload would start now if project vision had a quota of 1 GPU instead of 0."
    answer = ask(stage, workload, "alice")
    assert answer.sentence == f"{change} This would evict ads/borrows."
    assert answer.affected == ("ads/borrows",)
    answer = ask(stage, workload)
    assert answer.sentence == f"{change} This would evict a workload of another project."
    assert answer.affected == ()
    assert (answer.evicted_workloads, answer.scaled_down_workloads, answer.moved_workloads) == (1, 0, 0)


@pytest.mark.heavy
def test_no_change_is_suggested_for_running_or_reserved_workloads(stage: Stage) -> None:
    low = stage.submit("low", roles=FOUR, priority=10)
    stage.tick(2)
    low.refresh_from_db()
    assert ask(stage, low).sentence == "The workload is not pending."
    high = stage.submit("high", roles=FOUR, priority=90)
    stage.tick()
    high.refresh_from_db()
    assert high.phase == "reserved"
    assert ask(stage, high).sentence == "Capacity is already reserved for the workload."


def test_no_change_is_suggested_for_a_workload_that_starts_in_the_next_cycle(stage: Stage) -> None:
    answer = ask(stage, stage.submit(roles=ONE))
    assert (answer.outcome, answer.change) == ("not_needed", None)


@pytest.mark.heavy
def test_explanation_names_a_pool_below_its_ready_threshold(stage: Stage) -> None:
    NodePool.objects.update(operational_since=None, ready_threshold=3)
    workload = pending(stage, roles=[{"name": "worker", "replicas": 5, "gpu": 1}])
    assert ask(stage, workload).sentence == (
        "Pool local accepts workloads once 3 nodes are ready; 2 ready so far."
    )


@pytest.mark.heavy
def test_smallest_change_is_unknown_if_the_search_fails(held: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    workload = pending(held)
    monkeypatch.setattr(report, "smallest_change", fail)
    answer = ask(held, workload)
    assert (answer.outcome, answer.sentence) == (
        "undecided", "The search for a change that would start the workload now was not completed.",
    )  # fmt: skip


def test_smallest_change_is_computed_once_per_cluster_state(
    held: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    searches = []

    def count(*arguments: object) -> search.SmallestChange:
        searches.append(arguments)
        return search.smallest_change(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(report, "smallest_change", count)
    monkeypatch.setattr(report, "_results", report._ResultCache())
    workload = pending(held)
    for who in ("dave", "alice", "dave"):
        ask(held, workload, who)
    held.clock.advance(10)
    ask(held, workload)
    assert len(searches) == 1
    held.clock.advance(report.MAX_AGE.total_seconds())
    ask(held, workload)
    assert len(searches) == 2  # time alone may change the answer
    Quota.objects.filter(project=held.cast.vision).update(limit_gpu_milli=8000)
    ask(held, workload)
    assert len(searches) == 3


def test_scheduler_process_never_searches_for_the_smallest_change(
    held: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reject(*_: object) -> None:
        raise AssertionError("the scheduler searched for a change")

    monkeypatch.setattr(search, "_TrialRuns", reject)
    pending(held)
