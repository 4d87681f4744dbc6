"""Tests for node pools and nodes over REST."""

from typing import Any

import pytest
from django.utils import timezone

from pools.models import Node, NodePool
from projects.models import Pod
from projects.services import workloads
from scheduler.models import Allocation
from tests.api.conftest import Caller
from tests.cast import Cast, training
from tests.harness.samples import sample


@pytest.fixture
def node(cast: Cast) -> Node:
    return Node.objects.create(
        pool=cast.pool, name="local-0", ordinal=0, state="ready", instance_id="i-0", address="10.0.0.9",
        gpus=2, cpu_milli=8000, memory_mib=16384, since=timezone.now(),
    )  # fmt: skip


def test_default_limits_are_stored_and_invalid_limits_are_rejected(cast: Cast, alice: Caller) -> None:
    unset = {"memory_from_request": True, "memory_mib": None, "cpu_from_request": False, "cpu": None}
    body = {"name": "small", "nodes": 1, "provider": "fake", "runtime": "fake"}
    assert alice.post("node-pools", body).json()["default_limits"] == unset
    changes = {"default_limits": {"memory_mib": 4096}, "workspace_limit_mib": 100}
    edited = alice("PATCH", "node-pools/small", changes, headers={"If-Match": "*"})
    assert edited.json()["default_limits"] == {**unset, "memory_mib": 4096}
    assert edited.json()["workspace_limit_mib"] == 100
    for limit in (0, -1, 2**31, "many"):
        changes = {"workspace_limit_mib": limit}
        rejected = alice("PATCH", "node-pools/small", changes, headers={"If-Match": "*"})
        assert (rejected.status_code, rejected.json()["errors"][0]["path"]) == (422, "workspace_limit_mib")
    changes = {"default_limits": {"memory_mib": 4}}
    rejected = alice("PATCH", "node-pools/small", changes, headers={"If-Match": "*"})
    (error,) = rejected.json()["errors"]
    assert (rejected.status_code, error["path"]) == (422, "default_limits.memory_mib")
    assert error["allowed"] == "16 MiB or more, or unlimited"


def test_every_role_sees_free_resources_and_users_without_a_role_see_nothing(
    cast: Cast, erin: Caller, frank: Caller, alice: Caller, node: Node
) -> None:
    workload = workloads.submit(actor=cast.dave, project=cast.vision, document=training())
    pod = Pod.objects.create(workload=workload, role="worker", index=0, run=1, node=node, state="running")
    Allocation.objects.create(pod=pod, node=node, devices=[0], gpu_milli=500, cpu_milli=1500, memory_mib=384)
    pool = erin.get("node-pools").json()["items"][0]
    assert pool["capacity"] == {"gpu": 2.0, "cpu": 8.0, "memory_mib": 16384}
    assert pool["free"] == {"gpu": 1.5, "cpu": 6.5, "memory_mib": 16000}
    assert (pool["nodes_ready"], pool["nodes_min"], pool["nodes_max"]) == (1, 0, 4)
    viewed = erin.get("nodes/local-0").json()
    assert (viewed["free"], viewed["address"], viewed["instance_id"]) == (pool["free"], None, None)
    assert alice.get("nodes/local-0").json()["address"] == "10.0.0.9"
    for path in ("node-pools", "nodes", "utilization/nodes", "utilization/workloads"):
        assert frank.get(path).json()["items"] == [], path
    utilization = frank.get("utilization").json()
    assert (utilization["pools"], utilization["now"]["pods"]) == ([], 0)
    for path in (
        "node-pools/local",
        "node-pools/local/queue",
        "nodes/local-0/utilization",
    ):
        hidden, missing = frank.get(path), frank.get(path.replace("local-0", "x").replace("local", "x"))
        assert (hidden.status_code, missing.status_code) == (404, 404), path
        texts = [answer.json()["detail"] for answer in (hidden, missing)]
        assert texts[0].replace("local-0", "x").replace("local", "x") == texts[1]
    hidden, missing = frank.get("utilization?pool=local"), frank.get("utilization?pool=x")
    assert (hidden.status_code, missing.status_code) == (422, 422)
    assert hidden.json()["detail"].replace("local", "x") == missing.json()["detail"]


def test_isolation_is_visible_to_all_and_isolation_problems_only_to_platform_admins(
    cast: Cast, erin: Caller, alice: Caller, node: Node
) -> None:
    for path in ("nodes/local-0", "node-pools/local"):
        assert erin.get(path).json()["isolation"] is None
    limits = {"limits": ["processes"], "limits_obstacle": "no cgroups", "ignores_limits": False}
    limits |= {"images": "4.3.1", "images_obstacle": "no podman"}
    limits |= {"seccomp": True, "seccomp_obstacle": "off"}
    node.isolation = {"level": "none", "policy": "auto", "obstacle": "no bubblewrap", **limits}
    node.save()
    other = {"name": "local-1", "ordinal": 1, "instance_id": "i-1"}
    Node.objects.create(
        pool=cast.pool, state="ready", cpu_milli=1000, memory_mib=1024, since=timezone.now(), **other,
        isolation={"level": "users", "policy": "require", "obstacle": "", **limits},
    )  # fmt: skip
    assert erin.get("nodes/local-0").json()["isolation"] == {
        "level": "none", "policy": "auto", "obstacle": "", "limits": ["processes"], "limits_obstacle": "",
        "images": "4.3.1", "images_obstacle": "",
        "seccomp": True, "seccomp_obstacle": "",
    }  # fmt: skip
    assert alice.get("nodes/local-0").json()["isolation"]["limits_obstacle"] == "no cgroups"
    assert alice.get("nodes/local-0").json()["isolation"]["images_obstacle"] == "no podman"
    assert alice.get("nodes/local-0").json()["isolation"]["obstacle"] == "no bubblewrap"
    assert alice.get("nodes/local-1").json()["isolation"]["policy"] == "require"
    for path in ("node-pools/local", "node-pools"):
        answer = erin.get(path).json()
        pool = answer["items"][0] if "items" in answer else answer
        assert pool["isolation"] == "none", "the weakest level of the pool's nodes"


def test_platform_admins_create_edit_and_delete_a_pool(alice: Caller, bob: Caller) -> None:
    values = {
        "name": "big",
        "provider": "fake",
        "runtime": "fake",
        "nodes_min": 1,
        "nodes_max": 3,
        "cpu": 0.5,
    }
    assert bob.post("node-pools", values).status_code == 403
    made = alice.post("node-pools", values)
    assert (made.status_code, made["ETag"], made.json()["cpu"]) == (201, '"1"', 0.5)
    changed = alice("PATCH", "node-pools/big", {"memory_mib": 2048}, headers={"If-Match": '"1"'})
    assert (changed.status_code, changed.json()["memory_mib"], changed["ETag"]) == (200, 2048, '"2"')
    assert alice("PATCH", "node-pools/big", {"cpu": 1}, headers={"If-Match": '"1"'}).status_code == 412
    assert alice("DELETE", "node-pools/big").status_code == 204
    assert alice.get("node-pools/big").status_code == 404


@pytest.mark.heavy
def test_new_pool_holds_nodes_for_large_workloads_after_ten_minutes_by_default(alice: Caller) -> None:
    values = {"name": "big", "provider": "fake", "runtime": "fake", "nodes_min": 1, "nodes_max": 1, "cpu": 1}
    assert alice("POST", "node-pools", values).json()["reservation_after"] == 600
    changed = alice("PATCH", "node-pools/big", {"reservation_after": None}, headers={"If-Match": '"1"'})
    assert changed.json()["reservation_after"] is None


def test_fake_providers_are_rejected_unless_enabled(cast: Cast, alice: Caller, settings: Any) -> None:
    settings.BERTH_FAKE_POOLS = ""
    providers = "local, static, aws, kubernetes, ssh, slurm"
    runtimes = "local, ray, kubernetes"
    for field, allowed in (("provider", providers), ("runtime", runtimes)):
        errors = [
            alice.post("node-pools", {"name": "big", field: word}).json()["errors"]
            for word in ("fake", "moon")
        ]
        for (error,), word in zip(errors, ("fake", "moon"), strict=True):
            assert (error["path"], error["message"]) == (field, "is not an allowed value")
            assert (error["received"], error["allowed"]) == (f"'{word}'", allowed)
    assert cast.pool.provider == cast.pool.runtime == "fake"
    change = {"provider": "fake", "runtime": "fake", "memory_mib": 2048}
    changed = alice("PATCH", "node-pools/local", change, headers={"If-Match": "*"})
    assert (changed.status_code, changed.json()["memory_mib"]) == (200, 2048), (
        "an existing fake pool keeps working"
    )


def test_provider_settings_are_validated_and_visible_to_platform_admins(alice: Caller, dave: Caller) -> None:
    provider_settings = {
        "region": "us-east-1", "instance_types": ["g6.12xlarge"], "subnets": ["subnet-0abc"],
        "image": "ami-0abc",
    }  # fmt: skip
    values = {"name": "cloud", "provider": "aws", "runtime": "fake", "nodes_max": 3, "gpus_per_node": 4}
    for wrong, path in (
        ({}, "provider_settings.region"),
        (provider_settings | {"region": "moon"}, "provider_settings.region"),
        (provider_settings | {"purchase": "free"}, "provider_settings.purchase"),
        (provider_settings | {"secret_key": "x"}, "provider_settings.secret_key"),
        ("text", "provider_settings"),
    ):
        answer = alice.post("node-pools", {**values, "provider_settings": wrong})
        assert answer.status_code == 422
        assert path in [fault["path"] for fault in answer.json()["errors"]]
    made = alice.post("node-pools", {**values, "provider_settings": provider_settings})
    assert (made.status_code, made.json()["provider_settings"]) == (201, provider_settings)
    assert made.json()["current_price"] == 1.1504
    assert dave.get("node-pools/cloud").json()["provider_settings"] is None
    changed = alice("PATCH", "node-pools/cloud", {"price_per_gpu_hour": 0.9}, headers={"If-Match": '"1"'})
    assert changed.json()["current_price"] == 0.9
    here = alice(
        "PATCH", "node-pools/local", {"provider_settings": provider_settings}, headers={"If-Match": '"1"'}
    )
    assert here.status_code == 422


@pytest.mark.parametrize(
    ("values", "path"),
    [
        ({"nodes_min": 3, "nodes_max": 2}, "nodes"),
        ({"nodes_min": -1}, "nodes_min"),
        ({"nodes_min": 10**12}, "nodes_min"),
        ({"cpu": "lots"}, "cpu"),
        ({"provider": "moon"}, "provider"),
        ({"colour": "red"}, "colour"),
        ({"taints": [{"effect": "NoSchedule"}]}, "taints[0].key"),
        ({"k": float("1e300")}, "k"),
        ({"nodes_desired": 2}, "nodes_desired"),
        ({"name": "<b>"}, "name"),
    ],
)
def test_error_names_the_invalid_pool_field(alice: Caller, values: dict[str, object], path: str) -> None:
    answer = alice.post("node-pools", {"name": "big", "nodes_max": 3, **values})
    assert answer.status_code == 422
    assert any(fault["path"].startswith(path) for fault in answer.json()["errors"])
    assert NodePool.objects.count() == 1


def test_scaling_a_pool_within_its_bounds_records_the_user(alice: Caller, dave: Caller) -> None:
    assert alice.post("node-pools/local/scale", {"nodes": 3}).json()["nodes_desired"] == 3
    assert alice.post("node-pools/local/scale", {"nodes": 5}).status_code == 422
    assert alice.post("node-pools/local/pause").json()["paused"] is True
    assert alice.post("node-pools/local/resume").json()["paused"] is False
    history = dave.get("node-pools/local/history").json()["items"]
    assert [event["kind"] for event in history] == ["resumed", "paused", "autoscale"]
    assert (history[-1]["before"], history[-1]["after"], history[-1]["reason"]) == (0, 3, "set by alice")


def test_node_is_cordoned_drained_uncordoned_and_terminated(alice: Caller, bob: Caller, node: Node) -> None:
    assert bob.post("nodes/local-0/cordon").status_code == 403
    assert alice.post("nodes/local-0/cordon", {"reason": "noisy fan"}).json()["state"] == "cordoned"
    assert alice.post("nodes/local-0/cordon").status_code == 409
    assert alice.post("nodes/local-0/drain").json()["state"] == "draining"
    back = alice.post("nodes/local-0/uncordon").json()
    assert (back["state"], back["drain_started_at"]) == ("ready", None)
    assert alice.post("nodes/local-0/terminate", {"reason": "smoke"}).json()["state"] == "lost"
    reasons = [event["reason"] for event in alice.get("node-pools/local/history").json()["items"]]
    assert reasons[0] == "terminate by alice: smoke"
    change = alice.get("audit", object_name="local-0").json()["items"][0]
    assert (change["actor"], change["before"]["state"], change["after"]["state"]) == (
        "alice",
        "ready",
        "lost",
    )


@pytest.mark.heavy
@pytest.mark.shows("SKY-02", "SKY-10", "SKY-11", "SKY-19")
@pytest.mark.parametrize(
    ("nodes", "stored"),
    sample(
        [
            (4, (4, None, None)),
            ({"min": 8, "desired": 4}, (8, 4, None)),
            ([2, 16], (2, None, 16)),
            ({"min": 4, "desired": 2, "max": 16}, (4, 2, 16)),
        ],
        2,
    ),
)
def test_nodes_field_accepts_four_notations(
    alice: Caller, nodes: object, stored: tuple[int | None, ...]
) -> None:
    made = alice.post("node-pools", {"name": "big", "nodes": nodes}).json()
    assert (made["nodes_min"], made["ready_threshold"], made["nodes_max"]) == stored
    changed = alice("PATCH", "node-pools/local", {"nodes": nodes}, headers={"If-Match": '"1"'}).json()
    assert (changed["nodes_min"], changed["ready_threshold"], changed["nodes_max"]) == stored


@pytest.mark.shows("SKY-09", "SKY-16", "SKY-18")
@pytest.mark.parametrize(
    ("values", "path"),
    [
        ({"nodes": 0}, "nodes.min"),
        ({"nodes": [4, 3]}, "nodes.max"),
        ({"nodes": {"min": 4, "desired": 5}}, "nodes.desired"),
        ({"nodes": {"min": 1, "maxi": 5}}, "nodes.maxi"),
        ({"nodes": "4"}, "nodes"),
        ({"nodes": None}, "nodes"),
        ({"nodes": 4, "nodes_max": 5}, "nodes_max"),
        ({"nodes_min": 4, "nodes_max": 3}, "nodes_max"),
        ({"nodes_min": 4, "ready_threshold": 5}, "ready_threshold"),
    ],
)
def test_error_names_the_invalid_node_count_field(
    alice: Caller, values: dict[str, object], path: str
) -> None:
    answer = alice.post("node-pools", {"name": "big", **values})
    assert answer.status_code == 422
    assert [fault["path"] for fault in answer.json()["errors"]] == [path]


@pytest.mark.heavy
def test_pool_is_drained_and_resumed(alice: Caller, node: Node) -> None:
    NodePool.objects.filter(name="local").update(nodes_min=1, nodes_desired=1)
    drained = alice.post("node-pools/local/drain", {"reason": "moving house"}).json()
    assert (drained["nodes_desired"], drained["expires_at"] is None) == (0, False)
    again = alice.post("node-pools/local/drain", {}).json()
    assert again["expires_at"] == drained["expires_at"], "draining again does not extend the drain"
    back = alice.post("node-pools/local/resume").json()
    assert (back["nodes_desired"], back["expires_at"]) == (1, None)
    reasons = [event["reason"] for event in alice.get("node-pools/local/history").json()["items"]]
    assert reasons == ["resumed by alice", "drained by alice: moving house"]
    alice.post("node-pools/local/pause")
    assert alice.post("node-pools/local/drain", {}).status_code == 409


def test_cost_capacity_and_fragmentation_are_reported(alice: Caller, dave: Caller, node: Node) -> None:
    NodePool.objects.filter(name="local").update(price_per_gpu_hour="0.5")
    capacity = dave.get("node-pools/local/capacity", span=3600).json()
    assert [capacity["points"][-1][name] for name in ("current", "pending", "draining")] == [1, 0, 0]
    assert dave.get("node-pools/local/capacity", span=1).status_code == 422
    costs = dave.get("node-pools/local/cost").json()
    assert (costs["price_per_gpu_hour"], costs["per_hour"], costs["last_24_hours"]["cost"]) == (0.5, 1.0, 0.0)
    pieces = dave.get("node-pools/local/fragmentation").json()
    assert (pieces["nodes"], pieces["free_gpus"]) == (1, 2)
    assert pieces["levels"][-1] == {"gpus": 2, "nodes": 1, "replicas": 1}


def test_only_platform_admins_see_the_workloads_on_a_node(
    cast: Cast, alice: Caller, dave: Caller, node: Node
) -> None:
    workload = workloads.submit(actor=cast.dave, project=cast.vision, document=training())
    Pod.objects.create(workload=workload, role="worker", index=0, run=1, node=node, state="running")
    assert alice.get("nodes/local-0").json()["work"] == [f"{workload.handle} (1 pod)"]
    assert alice.get("nodes").json()["items"][0]["work"] == [f"{workload.handle} (1 pod)"]
    assert dave.get("nodes/local-0").json()["work"] is None
