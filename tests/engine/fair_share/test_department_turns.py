"""Tests that the division of capacity among departments depends only on requests."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from scheduler.engine.decide import decide
from scheduler.engine.layout.layout import Layout
from scheduler.engine.model import Snapshot
from scheduler.simulator import load
from scheduler.simulator.simulation import SimulatedCluster
from tests.engine.test_invariants import on_random_clusters

Document = dict[str, Any]
GPUS = 16
# Sizes of a project's workloads, in order.
SIZES = ((1,), (2,), (3,), (4,), (8,), (9,), (16,), (12, 1), (1, 9))


@st.composite
def departments_of_mixed_sizes(draw: st.DrawFn) -> Document:
    """Draw a full node shared by departments whose projects have workloads of different sizes."""
    departments = [f"d{number}" for number in range(draw(st.integers(2, 3)))]
    projects = {f"{d}p{number}": d for d in departments for number in range(draw(st.integers(1, 3)))}
    workloads, free = [], GPUS
    for project in draw(st.permutations(list(projects))):
        sizes = draw(st.sampled_from(SIZES))
        for number in range(draw(st.integers(1, 6))):
            gpus = sizes[number % len(sizes)]
            workload: Document = {"name": f"{project}w{number}", "project": project, "roles": [{"gpu": gpus}]}
            if gpus <= free and draw(st.booleans()):
                workload["pods"] = [{"node": "n", "started": "2025-12-31T20:00:00Z"}]
                free -= gpus
            workloads.append(workload)
    return {
        "format": "berth.scenario/1",
        "pools": [{"name": "default", "fairshare": {"mode": "time_based", "half_life": 3600, "k": 1.0}}],
        "nodes": [{"name": "n", "gpus": GPUS}],
        "departments": [_queue(draw, name) for name in departments],
        "projects": [_queue(draw, name) | {"department": d} for name, d in projects.items()],
        "workloads": workloads,
    }


def _queue(draw: st.DrawFn, name: str) -> Document:
    weight, used = draw(st.integers(1, 3)), draw(st.integers(0, 10)) / 10
    return {
        "name": name,
        "quotas": {"default": {"gpu": 0, "weight": weight}},
        "usage": {"default": {"gpu": used}},
    }


def divided_departments(snapshot: Snapshot) -> set[str]:
    (board,) = Layout(snapshot).boards.values()
    return {account.name for account in board.ledger.roots if any(account.divided)}


@on_random_clusters(10)
@given(document=departments_of_mixed_sizes())
def test_applying_a_plan_does_not_change_which_departments_take_turns_by_project(document: Document) -> None:
    world = SimulatedCluster(load(document).snapshot)
    before = divided_departments(world.snapshot())
    world.apply_plan(decide(world.snapshot()))
    assert divided_departments(world.snapshot()) == before


def test_projects_rather_than_departments_take_turns_only_if_a_workload_exceeds_the_share() -> None:
    def divided(one: tuple[int, ...], other: tuple[int, ...], **mode: Any) -> set[str]:
        sizes = {"a": one, "b": other, "c": (1,) * GPUS}
        document: Document = {
            "format": "berth.scenario/1",
            "pools": [{"name": "default", "fairshare": {"mode": "time_based", "half_life": 3600, **mode}}],
            "nodes": [{"name": "n", "gpus": GPUS}],
            "departments": [{"name": name, "quotas": {"default": {"gpu": 0}}} for name in ("small", "other")],
            "projects": [
                {"name": name, "department": "other" if name == "c" else "small",
                 "quotas": {"default": {"gpu": 0}}}
                for name in sizes
            ],
            "workloads": [
                {"name": f"{name}{number}", "project": name, "roles": [{"gpu": gpus}]}
                for name, requested in sizes.items()
                for number, gpus in enumerate(requested)
            ],
        }  # fmt: skip
        return divided_departments(load(document).snapshot)

    assert divided((9,), (4, 4)) == {"small"}
    assert divided((8,), (4, 4)) == set()  # the workload fits the share
    assert divided((9,), (16,)) == set()  # no workload fits the share
    assert divided((9,), ()) == set()  # no sibling requests anything
    assert divided((9,), (4, 4), k=0.0) == set()  # history does not count
