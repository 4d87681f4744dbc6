"""Tests for join tokens that admit several machines, and for machines that join again."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from pools import services
from pools.models import JoinToken, Machine, Node, NodePool, ScalingEvent
from pools.providers.static import SILENT_AFTER
from tests.api.conftest import Caller
from tests.api.pools.joining.test_joining import MACHINE, reconcile_pool, report_in
from tests.cast import Cast

TOKENS = "node-pools/metal/join-tokens"
MACHINES = "node-pools/metal/machines"
anonymous = Caller()


@pytest.fixture
def token(alice: Caller, metal_pool: NodePool) -> str:
    return str(alice.post(TOKENS, {"max_machines": 2}).json()["token"])


def join(token: str, number: int, **fields: Any) -> Any:
    identity = {"name": f"box-{number}", "machine_id": f"{number:032x}"}
    return anonymous.post("node-pools/metal/join", {**MACHINE, **identity, "token": token, **fields})


def silence() -> None:
    long_ago = timezone.now() - SILENT_AFTER - timedelta(seconds=1)
    Machine.objects.update(last_seen_at=long_ago, joined_at=long_ago - timedelta(hours=1))


def names(alice: Caller, **query: Any) -> list[str]:
    return [machine["name"] for machine in alice.get(MACHINES, **query).json()["items"]]


def test_token_admits_at_most_its_maximum_number_of_machines(alice: Caller, token: str) -> None:
    assert [join(token, number).status_code for number in (1, 2, 3)] == [200, 200, 401]
    rejection = join(token, 3).json()["detail"]
    assert rejection == "This join token admits 2 machines and has been used up. Issue a new token."
    [listed] = alice.get(TOKENS).json()["items"]
    assert (listed["state"], listed["max_machines"], listed["machines_joined"]) == ("used", 2, 2)
    another = alice.post(TOKENS, {}).json()
    join(another["token"], 4)
    assert names(alice, token=listed["id"]) == ["box-1", "box-2"]
    assert names(alice, token=another["id"]) == ["box-4"]
    prefixes = {machine["token_prefix"] for machine in alice.get(MACHINES).json()["items"]}
    assert prefixes == {listed["prefix"], another["prefix"]}


@pytest.mark.heavy
def test_error_for_a_revoked_or_expired_token_states_when_it_became_invalid(
    alice: Caller, token: str
) -> None:
    JoinToken.objects.update(expires_at="2026-01-02T03:04:00Z")
    assert (
        join(token, 1).json()["detail"]
        == "This join token expired at 2026-01-02 03:04 UTC. Issue a new token."
    )
    JoinToken.objects.update(revoked_at="2026-01-01T03:04:00Z")
    assert (
        join(token, 1).json()["detail"]
        == "This join token was revoked at 2026-01-01 03:04 UTC. Issue a new token."
    )


def test_reinstalled_machine_replaces_its_registration_and_counts_once_against_the_token(
    alice: Caller, token: str
) -> None:
    former = join(token, 1).json()["secret"]
    key = Machine.objects.get().pk
    silence()
    again = join(token, 1, name="box-1-new", memory_mib=131072)
    assert again.status_code == 200
    machine = Machine.objects.get()
    assert (machine.pk, machine.name, machine.memory_mib) == (key, "box-1-new", 131072)
    assert alice.get(TOKENS).json()["items"][0]["machines_joined"] == 1
    assert report_in(former).status_code == 401, "the secret of the former installation is revoked"
    assert report_in(again.json()["secret"]).status_code == 200
    reasons = ScalingEvent.objects.filter(kind="joined").order_by("pk").values_list("reason", flat=True)
    assert [reason.split(", ")[0] for reason in reasons] == [
        "box-1 joined with 2 GPUs", "box-1-new joined again with 2 GPUs",
    ]  # fmt: skip


@pytest.mark.heavy
def test_machine_that_rejoins_before_it_is_lost_keeps_its_node(token: str, metal_pool: NodePool) -> None:
    join(token, 1)
    reconcile_pool(metal_pool, nodes_desired=1)
    node = Node.objects.get()
    secret = join(token, 1).json()["secret"]  # the machine did not receive the first secret
    reconcile_pool(metal_pool)
    assert report_in(secret).json()["node"] == node.name
    assert list(Node.objects.values_list("pk", "state")) == [(node.pk, "ready")]


def test_reporting_machine_cannot_be_replaced_with_a_join_token(token: str, metal_pool: NodePool) -> None:
    secret = join(token, 1).json()["secret"]
    report_in(secret)
    rejected = join(token, 1, address="10.9.9.9")
    assert rejected.status_code == 409
    assert rejected.json()["detail"].startswith("This machine still reports as box-1.")
    assert Machine.objects.get().address == MACHINE["address"]
    assert report_in(secret).status_code == 200


@pytest.mark.heavy
def test_removed_machine_needs_a_valid_token_to_rejoin(alice: Caller, token: str) -> None:
    join(token, 1)
    alice.post(f"{MACHINES}/box-1/remove", {})
    [listed] = alice.get(TOKENS).json()["items"]
    alice("DELETE", f"{TOKENS}/{listed['id']}")
    assert join(token, 1).status_code == 401
    assert names(alice) == []
    assert join(alice.post(TOKENS, {}).json()["token"], 1).status_code == 200
    assert names(alice) == ["box-1"]
    assert Machine.objects.count() == 1


@pytest.mark.heavy
def test_machine_belongs_to_only_one_pool_at_a_time(alice: Caller, cast: Cast, token: str) -> None:
    services.create_pool(actor=cast.alice, name="other", nodes=(0, 3), provider="static", runtime="fake")
    join(token, 1)
    second = alice.post("node-pools/other/join-tokens", {}).json()["token"]
    body = {**MACHINE, "machine_id": f"{1:032x}", "token": second}
    rejected = anonymous.post("node-pools/other/join", body)
    assert rejected.status_code == 409
    assert "This machine belongs to pool metal as box-1." in rejected.json()["detail"]
    alice.post(f"{MACHINES}/box-1/remove", {})
    assert anonymous.post("node-pools/other/join", body).status_code == 200
