"""Join tokens and joined machines over REST."""

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
HAS: dict[str, Any] = {
    "address": "10.1.0.5", "cpu": 16, "memory_mib": 65536, "devices": ["GPU-a", "GPU-b"], "gpu_model": "L4",
}  # fmt: skip
nobody = Caller()


@pytest.fixture
def metal(cast: Cast) -> NodePool:
    return services.create_pool(
        acting=cast.alice, name="metal", nodes=(0, 3), provider="static", runtime="fake", gpus_per_node=2,
        cpu_milli=8000, memory_mib=16384,
    )  # fmt: skip


def join(alice: Caller, name: str = "box-1") -> str:
    token = alice.post(TOKENS, {"comment": f"for {name}"}).json()["token"]
    answer = nobody.post("node-pools/metal/join", {**HAS, "name": name, "token": token})
    assert answer.status_code == 200, answer.content
    return str(answer.json()["secret"])


def called(secret: str) -> Any:
    return nobody.post("machines/call", {}, Authorization=f"Bearer {secret}")


def look(pool: NodePool, nodes_desired: int | None = None) -> None:
    changes: dict[str, Any] = {"ticked_at": None, "retry_at": None}
    NodePool.objects.filter(pk=pool.pk).update(
        **changes, **({} if nodes_desired is None else {"nodes_desired": nodes_desired})
    )
    reconcile(pool.pk, provider=StaticProvider(timezone.now), now=timezone.now())


def listed(alice: Caller, path: str = MACHINES, **query: Any) -> dict[str, Any]:
    return {item["name"]: item for item in alice.get(path, **query).json()["items"]}


def test_a_token_is_shown_once_and_only_its_digest_is_kept(alice: Caller, metal: NodePool) -> None:
    answer = alice.post(TOKENS, {"comment": "rack 7", "lifetime_seconds": 60})
    assert answer.status_code == 201
    issued = answer.json()
    assert (issued["state"], issued["comment"], issued["issued_by"]) == ("open", "rack 7", "alice")
    assert issued["token"].startswith(issued["prefix"])
    assert len(issued["prefix"]) == 10
    row = JoinToken.objects.get()
    assert row.digest == secrets.digest(issued["token"])
    assert issued["token"] not in str(row.__dict__.values())
    [known] = alice.get(TOKENS).json()["items"]
    assert known == {key: value for key, value in issued.items() if key != "token"}
    assert alice.get(f"{TOKENS}/{issued['id']}").json() == known
    told = Audit.objects.get(action="issue join token")
    assert issued["token"] not in str(told.after)


def test_tokens_say_what_became_of_them(alice: Caller, cast: Cast, metal: NodePool) -> None:
    join(alice)
    long_ago = timezone.now() - timedelta(hours=2)
    services.issue_join_token(acting=cast.alice, pool=metal, lasts=timedelta(hours=1), at=long_ago)
    revoked, _open = (alice.post(TOKENS, {}).json() for _ in range(2))
    assert alice("DELETE", f"{TOKENS}/{revoked['id']}").status_code == 204
    found = alice.get(TOKENS).json()["items"]
    assert [token["state"] for token in found] == ["open", "revoked", "used", "expired"]
    assert [token["used_by"] for token in found] == [None, None, "box-1", None]
    first = alice.get(TOKENS, limit=3).json()
    rest = alice.get(TOKENS, limit=3, cursor=first["next"]).json()
    assert [token["id"] for token in first["items"] + rest["items"]] == [token["id"] for token in found]


def test_nobody_joins_by_a_revoked_token(alice: Caller, metal: NodePool) -> None:
    issued = alice.post(TOKENS, {}).json()
    for _ in range(2):
        assert alice("DELETE", f"{TOKENS}/{issued['id']}").status_code == 204
    body = {**HAS, "name": "box-1", "token": issued["token"]}
    assert nobody.post("node-pools/metal/join", body).status_code == 401
    assert not Machine.objects.exists()
    assert Audit.objects.filter(action="revoke join token").count() == 1


def test_a_token_that_let_a_machine_in_is_not_revoked(alice: Caller, metal: NodePool) -> None:
    join(alice)
    [used] = alice.get(TOKENS).json()["items"]
    refused = alice("DELETE", f"{TOKENS}/{used['id']}")
    assert refused.status_code == 409
    assert "Remove the machine instead" in refused.json()["detail"]


@pytest.mark.parametrize(
    ("body", "path"),
    [({"lifetime_seconds": 0}, "lifetime_seconds"), ({"comment": "n" * 101}, "comment"), ({"x": 1}, "x")],
)
def test_a_wrong_wish_for_a_token_is_named(
    alice: Caller, metal: NodePool, body: dict[str, Any], path: str
) -> None:
    answer = alice.post(TOKENS, body)
    assert answer.status_code == 422
    assert [fault["path"] for fault in answer.json()["errors"]] == [path]


def test_only_who_runs_the_platform_sees_tokens_and_machines(
    alice: Caller, bob: Caller, metal: NodePool
) -> None:
    join(alice)
    [token] = alice.get(TOKENS).json()["items"]
    for path in (TOKENS, MACHINES, f"{TOKENS}/{token['id']}", f"{MACHINES}/box-1"):
        assert bob.get(path).status_code == 403
        assert nobody.get(path).status_code == 401
    assert bob("DELETE", f"{TOKENS}/{token['id']}").status_code == 403
    assert bob.post(f"{MACHINES}/box-1/remove", {}).status_code == 403
    assert alice.get("node-pools/nowhere/machines").status_code == 404
    assert alice.get(f"{TOKENS}/999999").status_code == 404
    assert alice.get("node-pools/local/join-tokens").json()["items"] == []
    assert alice.get(f"node-pools/local/join-tokens/{token['id']}").status_code == 404


def test_a_machine_that_is_free_goes_at_once(alice: Caller, metal: NodePool) -> None:
    secret = join(alice)
    assert listed(alice)["box-1"]["state"] == "free"
    answer = alice.post(f"{MACHINES}/box-1/remove", {"reason": "sold"})
    assert (answer.status_code, answer.json()["state"]) == (200, "departed")
    assert called(secret).status_code == 401, "its program ends"
    assert listed(alice) == {}
    assert listed(alice, departed="true")["box-1"]["departed_at"] is not None
    assert alice.post(f"{MACHINES}/box-1/remove", {}).status_code == 409
    assert alice.post(f"{MACHINES}/box-9/remove", {}).status_code == 404
    audit = Audit.objects.get(action="remove machine")
    assert (audit.object_name, audit.after) == ("box-1", {"departed": True, "reason": "sold"})
    assert join(alice), "another may join under its name"


def test_a_machine_that_runs_work_is_drained_before_it_goes(alice: Caller, metal: NodePool) -> None:
    secret = join(alice)
    look(metal, nodes_desired=1)
    node = Node.objects.get(pool=metal)
    told = listed(alice)["box-1"]
    assert (told["state"], told["node"]) == ("used", node.name)
    removed = alice.post(f"{MACHINES}/box-1/remove", {"reason": "to be sold"}).json()
    assert (removed["state"], removed["node"]) == ("draining", node.name)
    node.refresh_from_db()
    assert node.state == "draining"
    assert node.drain_reason == "machine box-1 removed by alice: to be sold"
    assert called(secret).json()["node"] == node.name, "it serves until then"
    assert alice.post(f"nodes/{node.name}/uncordon").status_code == 200
    look(metal)
    node.refresh_from_db()
    assert node.state == "draining", "it is on its way out, whoever puts it back"
    assert services.node_emptied(node)
    look(metal)
    assert called(secret).status_code == 401
    assert listed(alice) == {}
    look(metal)
    assert not Node.objects.filter(pool=metal).exclude(state="ended").exists(), "nobody else is there"
    kinds = ScalingEvent.objects.filter(pool=metal, node=node).order_by("pk").values_list("kind", flat=True)
    assert list(kinds) == ["ready", "interruption", "uncordon", "interruption", "terminate"]


def test_a_machine_that_is_leaving_is_given_to_no_other_node(alice: Caller, metal: NodePool) -> None:
    join(alice)
    join(alice, "box-2")
    look(metal, nodes_desired=1)
    node = Node.objects.get(pool=metal)
    alice.post(f"{MACHINES}/box-1/remove", {})
    look(metal)
    replacement = Node.objects.filter(pool=metal).exclude(pk=node.pk).get()
    assert replacement.instance_id.startswith("box-2/")
    Node.objects.filter(pk=node.pk).update(state="lost")
    look(metal)
    assert sorted(listed(alice)) == ["box-2"]
