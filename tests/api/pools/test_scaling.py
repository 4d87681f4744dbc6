"""Tests for pool scale-down and disruption budgets over REST."""

from collections.abc import Mapping
from typing import Any

import pytest
from django.utils import timezone

from pools.lost_work import lost_work_by_node
from pools.models import Node, NodePool
from pools.providers.base import Instance, InstanceState
from pools.reconciler import reconcile
from tests import factories as make
from tests.api.conftest import Caller
from tests.cast import Cast
from tests.fakes.provider import FakeProvider
from tests.harness.samples import sample


@pytest.fixture
def nodes(cast: Cast) -> list[Node]:
    """Create four nodes: the third runs a preemptible workload, the fourth a non-preemptible workload."""
    NodePool.objects.update(nodes_desired=4, operational_since=make.ago(hours=3))
    rows = [make.node(cast.pool, ordinal) for ordinal in range(4)]
    make.place(make.workload(cast.vision, "train", phase="running"), rows[2], [0])
    make.place(make.workload(cast.vision, "firm", phase="running", preemptible=False), rows[3], [0, 1])
    return rows


def edit(caller: Caller, changes: Mapping[str, object]) -> Any:
    return caller("PATCH", "node-pools/local", changes, headers={"If-Match": "*"})


def test_scale_down_lists_the_nodes_to_drain(cast: Cast, alice: Caller, nodes: list[Node]) -> None:
    before = alice.get("node-pools/local/scale", nodes=1).json()
    assert [item["node"] for item in before["draining"]] == ["local-1", "local-2", "local-3"]
    assert [(item["pods"], item["not_preemptible"]) for item in before["draining"]] == [
        (0, 0),
        (1, 0),
        (1, 1),
    ]
    assert before["draining"][2]["work"] == ["vision/firm (1 pod, non-preemptible)"]
    assert alice.get("node-pools/local").json()["nodes_desired"] == 4
    after = alice.post("node-pools/local/scale", {"nodes": 2}).json()
    assert (after["nodes_desired"], [item["node"] for item in after["draining"]]) == (
        2,
        ["local-1", "local-2"],
    )
    assert [item["node"] for item in alice.get("node-pools/local/scale").json()["draining"]] == [
        "local-1", "local-2",
    ]  # fmt: skip
    Node.objects.filter(ordinal=1).update(
        state="draining", drained_by_scaling=True, drain_started_at=make.ago()
    )
    draining = alice.get("node-pools/local/scale").json()["draining"]
    assert [item["node"] for item in draining] == ["local-1", "local-2"]


def test_viewer_cannot_scale_a_pool_and_sees_no_workload_names(
    cast: Cast, erin: Caller, nodes: list[Node]
) -> None:
    draining = erin.get("node-pools/local/scale", nodes=0).json()["draining"]
    assert [(item["node"], item["work"]) for item in draining][-1] == ("local-0", None)
    assert erin.get("node-pools/local/scale", nodes=5).status_code == 422
    assert erin.post("node-pools/local/scale", {"nodes": 1}).status_code == 403


@pytest.mark.heavy
def test_preview_names_the_disruption_budget_that_blocks_drains(
    cast: Cast, alice: Caller, nodes: list[Node]
) -> None:
    budgets = [{"nodes": 1, "reasons": ["underutilized"]}, {"nodes": "100%"}]
    changed = edit(alice, {"disruption_budgets": budgets}).json()
    assert changed["disruption_budgets"] == budgets
    draining = alice.post("node-pools/local/scale", {"nodes": 1}).json()["draining"]
    reason = "at most 1 node at a time if underutilized"
    assert [(item["node"], item["blocked_by"]) for item in draining] == [
        ("local-1", ""), ("local-2", reason), ("local-3", reason),
    ]  # fmt: skip
    assert alice.get("node-pools/local/scale").json()["blocked"] == [
        f"2 underutilized nodes cannot be drained yet: {reason}."
    ]


@pytest.mark.heavy
def test_consolidation_blocked_by_a_budget_is_reported(cast: Cast, alice: Caller, nodes: list[Node]) -> None:
    changes = {"node_consolidation": "when_underutilized", "disruption_budgets": [{"nodes": 0}]}
    edit(alice, changes)
    assert alice.get("node-pools/local/scale").json()["blocked"] == [
        "Empty nodes cannot be removed yet: at most 0 nodes at a time.",
        "Underutilized nodes cannot be removed yet: at most 0 nodes at a time.",
    ]


@pytest.mark.parametrize(
    ("values", "path"),
    [
        ({"disruption_budgets": [{"nodes": "lots"}]}, "disruption_budgets[0].nodes"),
        ({"disruption_budgets": {"nodes": 1}}, "disruption_budgets"),
        ({"disruption_budgets": None}, "disruption_budgets"),
        (
            {"disruption_budgets": [{"nodes": 1, "schedule": "* * * *", "duration": 60}]},
            "disruption_budgets[0]",
        ),
        ({"node_consolidation": "sometimes"}, "node_consolidation"),
        ({"node_consolidation_after": -1}, "node_consolidation_after"),
    ],
)
def test_error_names_the_invalid_disruption_budget(
    alice: Caller, values: dict[str, object], path: str
) -> None:
    answer = edit(alice, values)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["path"].startswith(path)


@pytest.mark.parametrize(
    ("changes", "staying"),
    sample(
        [
            ({"nodes_max": 2}, 2),
            ({"nodes": [0, 2]}, 2),
            ({"nodes": 2}, 2),
            ({"expires_at": "2026-01-01T00:00:00Z"}, 0),
        ],
        2,
    ),
)
def test_lowering_the_maximum_drains_the_excess_nodes_listed_in_the_preview(
    cast: Cast, alice: Caller, nodes: list[Node], changes: dict[str, object], staying: int
) -> None:
    draining = ["local-1", "local-2", "local-3", "local-0"][: 4 - staying]
    before = alice("PATCH", "node-pools/local", changes, dry_run="true")
    assert before.status_code == 200, before.content
    preview = before.json()
    assert (preview["nodes_desired"], [item["node"] for item in preview["draining"]]) == (staying, draining)
    assert preview["draining"][1]["work"] == ["vision/train (1 pod)"]
    stored = alice.get("node-pools/local").json()
    assert (stored["nodes_desired"], stored["nodes_max"], stored["version"]) == (4, 4, 1), "nothing is stored"
    after = edit(alice, changes)
    assert after.status_code == 200, after.content
    assert (after.json()["nodes_desired"], [item["node"] for item in after.json()["draining"]]) == (
        staying,
        draining,
    )
    now = timezone.now()
    reconcile(cast.pool.pk, provider=ListingProvider(nodes), now=now, work_to_lose=lost_work_by_node(now))
    drained = Node.objects.filter(state="draining").order_by("ordinal").values_list("name", flat=True)
    assert list(drained) == sorted(draining)


@pytest.mark.heavy
def test_raising_the_minimum_raises_the_desired_number_of_nodes(cast: Cast, alice: Caller) -> None:
    raised = edit(alice, {"nodes_min": 3})
    assert (raised.status_code, raised.json()["nodes_desired"], raised.json()["draining"]) == (200, 3, [])
    fixed = edit(alice, {"nodes": 5})
    assert (fixed.status_code, fixed.json()["nodes_desired"], fixed.json()["nodes_max"]) == (200, 5, None)
    both = edit(alice, {"nodes_min": 6, "nodes_max": 8})
    assert (both.status_code, both.json()["nodes_desired"]) == (200, 6)


@pytest.mark.heavy
def test_maximum_below_the_ready_threshold_is_rejected(cast: Cast, alice: Caller, nodes: list[Node]) -> None:
    edit(alice, {"nodes": {"min": 1, "desired": 4, "max": 4}})
    for path in ("node-pools/local", "node-pools/local?dry_run=true"):
        rejected = alice("PATCH", path, {"nodes_max": 2})
        assert rejected.status_code == 422
        assert [item["path"] for item in rejected.json()["errors"]] == ["ready_threshold"]


@pytest.mark.heavy
def test_invalid_edit_and_its_preview_return_the_same_error(alice: Caller, nodes: list[Node]) -> None:
    for changes, status in (
        ({"volumes": [{"name": "data", "source": "/data", "projects": ["visionx"]}]}, 422),
        ({"provider": "local", "runtime": "local"}, 409),
    ):
        edited, previewed = edit(alice, changes), alice("PATCH", "node-pools/local", changes, dry_run="true")
        assert (edited.status_code, previewed.status_code) == (status, status), previewed.content
        assert {**edited.json(), "request_id": ""} == {**previewed.json(), "request_id": ""}


def test_only_platform_admins_preview_an_edit(bob: Caller, nodes: list[Node]) -> None:
    assert bob("PATCH", "node-pools/local", {"nodes_max": 2}, dry_run="true").status_code == 403


class ListingProvider(FakeProvider):
    def __init__(self, nodes: list[Node]) -> None:
        super().__init__()
        for node in nodes:
            self.appear("local", Instance(node.instance_id, node.ordinal, InstanceState.READY, ""))
