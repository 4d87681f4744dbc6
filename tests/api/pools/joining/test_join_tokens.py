"""Tests for join tokens and joined machines over REST."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from pools import services
from pools.joining import secrets
from pools.models import JoinToken, Machine, Node, NodePool, ScalingEvent
from pools.providers.static import StaticProvider
from pools.reconciler import reconcile
from projects.models import Audit
from tests.api.conftest import Caller
from tests.cast import Cast

TOKENS = "node-pools/metal/join-tokens"
MACHINES = "node-pools/metal/machines"
MACHINE: dict[str, Any] = {
    "address": "10.1.0.5", "cpu": 16, "memory_mib": 65536, "devices": ["GPU-a", "GPU-b"], "gpu_model": "L4",
}  # fmt: skip
anonymous = Caller()


def join(alice: Caller, name: str = "box-1") -> str:
    token = alice.post(TOKENS, {"comment": f"for {name}"}).json()["token"]
    answer = anonymous.post("node-pools/metal/join", {**MACHINE, "name": name, "token": token})
    assert answer.status_code == 200, answer.content
    return str(answer.json()["secret"])


def report_in(secret: str) -> Any:
    return anonymous.post("machines/call", {}, Authorization=f"Bearer {secret}")


def reconcile_pool(pool: NodePool, nodes_desired: int | None = None) -> None:
    changes: dict[str, Any] = {"ticked_at": None, "retry_at": None}
    NodePool.objects.filter(pk=pool.pk).update(
        **changes, **({} if nodes_desired is None else {"nodes_desired": nodes_desired})
    )
    reconcile(pool.pk, provider=StaticProvider(timezone.now), now=timezone.now())


def listed(alice: Caller, path: str = MACHINES, **query: Any) -> dict[str, Any]:
    return {item["name"]: item for item in alice.get(path, **query).json()["items"]}


def test_token_is_shown_once_and_stored_as_a_digest(alice: Caller, metal_pool: NodePool) -> None:
    answer = alice.post(TOKENS, {"comment": "rack 7", "lifetime_seconds": 60})
    assert answer.status_code == 201
    issued = answer.json()
    assert (issued["state"], issued["comment"], issued["issued_by"]) == ("open", "rack 7", "alice")
    assert issued["token"].startswith(issued["prefix"])
    assert len(issued["prefix"]) == 10
    row = JoinToken.objects.get()
    assert row.digest == secrets.secret_digest(issued["token"])
    assert issued["token"] not in str(row.__dict__.values())
    [listed_token] = alice.get(TOKENS).json()["items"]
    assert listed_token == {key: value for key, value in issued.items() if key != "token"}
    assert alice.get(f"{TOKENS}/{issued['id']}").json() == listed_token
    audit = Audit.objects.get(action="issue_join_token")
    assert issued["token"] not in str(audit.after)


def test_tokens_are_listed_with_their_state(alice: Caller, cast: Cast, metal_pool: NodePool) -> None:
    join(alice)
    long_ago = timezone.now() - timedelta(hours=2)
    services.issue_join_token(actor=cast.alice, pool=metal_pool, lifetime=timedelta(hours=1), at=long_ago)
    revoked, _open = (alice.post(TOKENS, {}).json() for _ in range(2))
    assert alice("DELETE", f"{TOKENS}/{revoked['id']}").status_code == 204
    tokens = alice.get(TOKENS).json()["items"]
    assert [token["state"] for token in tokens] == ["open", "revoked", "used", "expired"]
    assert [token["machines_joined"] for token in tokens] == [0, 0, 1, 0]
    first = alice.get(TOKENS, limit=3).json()
    rest = alice.get(TOKENS, limit=3, cursor=first["next"]).json()
    assert [token["id"] for token in first["items"] + rest["items"]] == [token["id"] for token in tokens]


def test_machine_cannot_join_with_a_revoked_token(alice: Caller, metal_pool: NodePool) -> None:
    issued = alice.post(TOKENS, {}).json()
    for _ in range(2):
        assert alice("DELETE", f"{TOKENS}/{issued['id']}").status_code == 204
    body = {**MACHINE, "name": "box-1", "token": issued["token"]}
    assert anonymous.post("node-pools/metal/join", body).status_code == 401
    assert not Machine.objects.exists()
    assert Audit.objects.filter(action="revoke_join_token").count() == 1


@pytest.mark.heavy
def test_revoking_a_token_does_not_remove_its_machines(alice: Caller, metal_pool: NodePool) -> None:
    secret = join(alice)
    [used] = alice.get(TOKENS).json()["items"]
    assert alice("DELETE", f"{TOKENS}/{used['id']}").status_code == 204
    assert alice.get(TOKENS).json()["items"][0]["state"] == "revoked"
    assert report_in(secret).status_code == 200
    assert alice.get(MACHINES, token=used["id"]).json()["items"][0]["name"] == "box-1"


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"max_machines": 0}, "max_machines"),
        ({"lifetime_seconds": 366 * 86400}, "lifetime_seconds"),
        ({"lifetime_seconds": 0}, "lifetime_seconds"),
        ({"comment": "n" * 101}, "comment"),
        ({"x": 1}, "x"),
    ],
)
def test_error_names_the_invalid_join_token_field(
    alice: Caller, metal_pool: NodePool, body: dict[str, Any], path: str
) -> None:
    answer = alice.post(TOKENS, body)
    assert answer.status_code == 422
    assert [fault["path"] for fault in answer.json()["errors"]] == [path]


def test_only_platform_admins_see_tokens_and_machines(
    alice: Caller, bob: Caller, metal_pool: NodePool
) -> None:
    join(alice)
    [token] = alice.get(TOKENS).json()["items"]
    for path in (TOKENS, MACHINES, f"{TOKENS}/{token['id']}", f"{MACHINES}/box-1"):
        assert bob.get(path).status_code == 403
        assert anonymous.get(path).status_code == 401
    assert bob("DELETE", f"{TOKENS}/{token['id']}").status_code == 403
    assert bob.post(f"{MACHINES}/box-1/remove", {}).status_code == 403
    assert alice.get("node-pools/nowhere/machines").status_code == 404
    assert alice.get(f"{TOKENS}/999999").status_code == 404
    assert alice.get("node-pools/local/join-tokens").json()["items"] == []
    assert alice.get(f"node-pools/local/join-tokens/{token['id']}").status_code == 404


@pytest.mark.heavy
def test_machine_without_a_node_is_removed_immediately(alice: Caller, metal_pool: NodePool) -> None:
    secret = join(alice)
    assert listed(alice)["box-1"]["state"] == "free"
    answer = alice.post(f"{MACHINES}/box-1/remove", {"reason": "sold"})
    assert (answer.status_code, answer.json()["state"]) == (200, "departed")
    assert report_in(secret).status_code == 401, "the machine's agent ends"
    assert listed(alice) == {}
    assert listed(alice, departed="true")["box-1"]["departed_at"] is not None
    assert alice.post(f"{MACHINES}/box-1/remove", {}).status_code == 409
    assert alice.post(f"{MACHINES}/box-9/remove", {}).status_code == 404
    audit = Audit.objects.get(action="remove_machine")
    assert (audit.object_name, audit.after) == ("box-1", {"departed": True, "reason": "sold"})
    assert join(alice), "another machine may join with the same name"


def test_machine_with_a_node_is_drained_before_it_is_removed(alice: Caller, metal_pool: NodePool) -> None:
    secret = join(alice)
    reconcile_pool(metal_pool, nodes_desired=1)
    node = Node.objects.get(pool=metal_pool)
    machine = listed(alice)["box-1"]
    assert (machine["state"], machine["node"]) == ("used", node.name)
    removed = alice.post(f"{MACHINES}/box-1/remove", {"reason": "to be sold"}).json()
    assert (removed["state"], removed["node"]) == ("draining", node.name)
    node.refresh_from_db()
    assert node.state == "draining"
    assert node.drain_reason == "machine box-1 removed by alice: to be sold"
    assert report_in(secret).json()["node"] == node.name, "the machine stays a node until the node is drained"
    assert alice.post(f"nodes/{node.name}/uncordon").status_code == 200
    reconcile_pool(metal_pool)
    node.refresh_from_db()
    assert node.state == "draining", "uncordoning does not stop the removal"
    assert services.mark_node_emptied(node)
    reconcile_pool(metal_pool)
    assert report_in(secret).status_code == 401
    assert listed(alice) == {}
    reconcile_pool(metal_pool)
    assert not Node.objects.filter(pool=metal_pool).exclude(state="ended").exists(), (
        "no other machine is available"
    )
    kinds = (
        ScalingEvent.objects.filter(pool=metal_pool, node=node).order_by("pk").values_list("kind", flat=True)
    )
    assert list(kinds) == ["ready", "interruption", "uncordon", "interruption", "terminate"]


@pytest.mark.heavy
def test_machine_being_removed_gets_no_new_node(alice: Caller, metal_pool: NodePool) -> None:
    join(alice)
    join(alice, "box-2")
    reconcile_pool(metal_pool, nodes_desired=1)
    node = Node.objects.get(pool=metal_pool)
    alice.post(f"{MACHINES}/box-1/remove", {})
    reconcile_pool(metal_pool)
    replacement = Node.objects.filter(pool=metal_pool).exclude(pk=node.pk).get()
    assert replacement.instance_id.startswith("box-2/")
    Node.objects.filter(pk=node.pk).update(state="lost")
    reconcile_pool(metal_pool)
    assert sorted(listed(alice)) == ["box-2"]
