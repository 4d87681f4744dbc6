"""Tests for the gangs that pods form, and for the queues that gangs count towards."""

import pytest

from berth.core.values.amounts import MILLI
from scheduler.engine.layout.layout import Layout
from scheduler.engine.model import PodState
from scheduler.engine.plan import Place, Plan
from tests.engine.world import World, request, role, steps

ROLES = (role("leader", 1, 1, request(1)), role("worker", 1, 3, request(0.5)))


def cluster(**first_pods: int) -> World:
    """Return a cluster in which some pods of a two-role workload already run."""
    world = World(n=4).department("d", 8).project("p", "d", 8).project("other", "d", 0)
    world.queued("w", "p", roles=ROLES)
    if first_pods:
        made = world.workloads.pop()
        pods = tuple(
            world._pod(part, index, "n", made.submitted, PodState.RUNNING)
            for part in ROLES
            for index in range(first_pods.get(part.name, 0))
        )
        fields = {field: getattr(made, field) for field in made.__slots__}
        world.workloads.append(type(made)(**{**fields, "pods": pods}))
    return world


def placed(plan: Plan) -> list[tuple[str, str, int]]:
    return sorted((step.workload, step.role, step.index) for step in steps(plan) if isinstance(step, Place))


@pytest.mark.shows("RAI-08")
def test_first_pods_of_a_workload_form_one_gang_with_all_roles() -> None:
    plan = cluster().decide("allocate")
    (start, *grown) = plan.bundles
    assert {step.workload for step in start.steps} == {"w"}
    assert {(step.role, step.index) for step in start.steps} == {("leader", 0), ("worker", 0)}
    assert [bundle.workload for bundle in grown] == ["w"]


@pytest.mark.shows("RAI-09")
def test_later_pods_join_the_gang_of_the_first_pods() -> None:
    world = cluster(leader=1, worker=1)
    (board,) = Layout(world.snapshot()).boards.values()
    (gang,) = board.gangs.values()
    assert {part.role.name: sorted(part.live) for part in gang.parts} == {"leader": [0], "worker": [0]}
    assert placed(world.decide()) == [("w", "worker", 1), ("w", "worker", 2)]
    missing_its_leader = cluster(worker=2)
    assert placed(missing_its_leader.decide()) == [("w", "leader", 0), ("w", "worker", 2)]


@pytest.mark.shows("RAI-10", "RAI-11")
def test_gang_is_counted_only_for_its_own_project_and_department() -> None:
    plan = cluster(leader=1, worker=1).decide()
    held = {report.queue: report.allocated.gpu for report in plan.queues}
    assert held == {"d": 2500, "p": 2500, "other": 0}
    requested = {report.queue: report.requested.gpu for report in plan.queues}
    assert requested == {"d": 5 * MILLI // 2, "p": 5 * MILLI // 2, "other": 0}
