"""Tests for machines that join pools over REST and receive instructions."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.cache import cache
from django.utils import timezone
from pytest_django.live_server_helper import LiveServer

from pools import services
from pools.joining import secrets
from pools.joining.agent.allocation import ENDS_NOW
from pools.joining.instructions import Instructions
from pools.joining.user_data import user_data
from pools.models import JoinToken, Machine, Node, NodePool, ScalingEvent
from pools.providers.base import LaunchRequest, ProviderError, Shape
from pools.providers.static import StaticProvider
from pools.reconciler import reconcile
from scheduler.tasks import delete_expired
from tests.api.conftest import Caller
from tests.cast import Cast
from tests.contracts.pods import poll_until
from tests.support.agents import REJECTED, start_agent

MACHINE: dict[str, Any] = {
    "name": "box-1", "address": "10.1.0.5", "cpu": 16, "memory_mib": 65536, "devices": ["GPU-a", "GPU-b"],
    "gpu_model": "L4",
}  # fmt: skip
anonymous = Caller()


def join(alice: Caller, **more: Any) -> str:
    token = alice.post("node-pools/metal/join-tokens", {}).json()["token"]
    answer = anonymous.post("node-pools/metal/join", {**MACHINE, "token": token, **more})
    assert answer.status_code == 200, answer.content
    return str(answer.json()["secret"])


def report_in(secret: str, body: Any = None) -> Any:
    return anonymous.post("machines/call", body or {}, Authorization=f"Bearer {secret}")


def reconcile_pool(pool: NodePool, nodes_desired: int | None = None) -> None:
    if nodes_desired is not None:
        NodePool.objects.filter(pk=pool.pk).update(nodes_desired=nodes_desired)
    NodePool.objects.filter(pk=pool.pk).update(ticked_at=None)
    reconcile(pool.pk, provider=StaticProvider(timezone.now), now=timezone.now())


def test_joined_machine_becomes_a_node_and_is_released(alice: Caller, metal_pool: NodePool) -> None:
    secret = join(alice)
    nothing: dict[str, Any] = {
        "instance": "",
        "start": "",
        "stop": "",
        "check": "",
        "update": "",
        "upgrade": None,
        "digest": "",
        "prepare": "",
        "secrets": {},
    }
    assert report_in(secret).json() == {"node": None, "ordinal": None, **nothing}
    reconcile_pool(metal_pool, nodes_desired=1)
    node = Node.objects.get(pool=metal_pool)
    assert (node.state, node.address, node.devices) == ("ready", "10.1.0.5", ["GPU-a", "GPU-b"])
    assert report_in(secret).json()["node"] == node.name
    reconcile_pool(metal_pool, nodes_desired=0)
    assert services.mark_node_emptied(Node.objects.get(pool=metal_pool))
    reconcile_pool(metal_pool)
    assert report_in(secret).json()["node"] is None
    reconcile_pool(metal_pool, nodes_desired=1)
    assert report_in(secret).json()["node"] == "metal-0", "the same machine is used again"
    event = ScalingEvent.objects.filter(pool=metal_pool, kind="joined").get()
    assert event.reason == "box-1 joined with 2 GPUs, using a token issued by alice"


def test_join_token_admits_one_machine(alice: Caller, metal_pool: NodePool) -> None:
    token = alice.post("node-pools/metal/join-tokens", {"lifetime_seconds": 60}).json()["token"]
    assert anonymous.post("node-pools/metal/join", {**MACHINE, "token": token}).status_code == 200
    again = anonymous.post("node-pools/metal/join", {**MACHINE, "token": token, "name": "box-2"})
    assert again.status_code == 401
    assert (
        again.json()["detail"] == "This join token admits 1 machine and has been used up. Issue a new token."
    )
    assert Machine.objects.count() == 1


def test_join_token_is_valid_only_for_its_pool_and_lifetime(
    alice: Caller, cast: Cast, metal_pool: NodePool
) -> None:
    other = services.create_pool(
        actor=cast.alice, name="other", nodes=(0, 3), provider="static", runtime="fake"
    )
    lifetime, long_ago = timedelta(hours=1), timezone.now() - timedelta(hours=2)
    _, theirs = services.issue_join_token(actor=cast.alice, pool=other, lifetime=lifetime, at=timezone.now())
    _, old = services.issue_join_token(actor=cast.alice, pool=metal_pool, lifetime=lifetime, at=long_ago)
    for token in (theirs, old, "join_x", "order.metal.t.0", ""):
        status = anonymous.post("node-pools/metal/join", {**MACHINE, "token": token}).status_code
        assert status == (422 if not token else 401)
    assert not Machine.objects.exists()


def test_only_platform_admins_issue_tokens(alice: Caller, bob: Caller, metal_pool: NodePool) -> None:
    assert bob.post("node-pools/metal/join-tokens", {}).status_code == 403
    assert anonymous.post("node-pools/metal/join-tokens", {}).status_code == 401
    assert alice.post("node-pools/local/join-tokens", {}).status_code == 409
    assert alice.post("node-pools/metal/join-tokens", {"lifetime_seconds": 10**9}).status_code == 422


def test_request_with_a_forged_secret_is_rejected(alice: Caller, metal_pool: NodePool) -> None:
    secret = join(alice)
    key = Machine.objects.get().pk
    forged = (
        secrets.machine_secret(key, 1)[:-1] + "x",
        secrets.node_secret(key),
        secret + "0",
        "machine..",
        "x",
    )
    for wrong in forged:
        assert report_in(wrong).status_code == 401
    assert anonymous.post("machines/call", {}).status_code == 401
    assert anonymous.post("machines/leave", Authorization=f"Bearer {secret}").status_code == 204
    assert report_in(secret).status_code == 401


@pytest.mark.parametrize(
    ("wrong", "path"),
    [
        ({"cpu": "many"}, "cpu"),
        ({"devices": [1]}, "devices[0]"),
        ({"devices": ["GPU-a", "GPU-a"]}, "devices"),
        ({"devices": ["GPU-a,GPU-b"]}, "devices[0]"),
        ({"address": "10.0.0.1 --evil"}, "address"),
        ({"name": "Box 1"}, "name"),
        ({"x": 1}, "x"),
    ],
)
def test_error_names_the_invalid_machine_field(
    alice: Caller, metal_pool: NodePool, wrong: dict[str, Any], path: str
) -> None:
    answer = anonymous.post("node-pools/metal/join", {**MACHINE, "token": "join_x", **wrong})
    assert answer.status_code == 422
    assert [fault["path"] for fault in answer.json()["errors"]] == [path]


def test_valid_machine_is_accepted_from_a_throttled_client_address(
    alice: Caller, metal_pool: NodePool, settings: Any
) -> None:
    secret = join(alice)
    settings.BERTH_RATE_LIMITS = {**settings.BERTH_RATE_LIMITS, "bad_token": 3, "write": 3}
    cache.clear()
    assert [report_in(f"machine.{number}.x").status_code for number in range(5)] == [401, 401, 401, 429, 429]
    wrong = anonymous.post("node-pools/metal/join", {**MACHINE, "token": "join_x"})
    assert wrong.status_code == 429
    assert [report_in(secret).status_code for _ in range(4)] == [200, 200, 200, 429]


@pytest.mark.heavy
def test_reinstalled_machine_replaces_its_previous_registration(alice: Caller, metal_pool: NodePool) -> None:
    # A reinstalled machine may never have received the response that contained its secret.
    former = join(alice)
    token = alice.post("node-pools/metal/join-tokens", {}).json()["token"]
    assert anonymous.post("node-pools/metal/join", {**MACHINE, "token": token}).status_code == 409, (
        "a live machine has this name"
    )
    Machine.objects.update(last_seen_at=timezone.now() - timedelta(seconds=181))
    assert anonymous.post("node-pools/metal/join", {**MACHINE, "token": token}).status_code == 200
    assert report_in(former).status_code == 401
    assert Machine.objects.filter(name="box-1", departed_at=None).count() == 1


@pytest.mark.heavy
def test_expired_tokens_are_deleted(alice: Caller, cast: Cast, metal_pool: NodePool) -> None:
    for days in (40, 1):
        at = timezone.now() - timedelta(days=days, hours=2)
        services.issue_join_token(actor=cast.alice, pool=metal_pool, lifetime=timedelta(hours=1), at=at)
    assert delete_expired()["join tokens"] == 1
    assert JoinToken.objects.count() == 1


@pytest.mark.heavy
def test_silent_machine_is_marked_lost_and_recovers_with_its_next_report(
    alice: Caller, metal_pool: NodePool
) -> None:
    secret = join(alice)
    reconcile_pool(metal_pool, nodes_desired=1)
    Machine.objects.update(last_seen_at=timezone.now() - timedelta(seconds=181))
    reconcile_pool(metal_pool)
    assert not Node.objects.filter(pool=metal_pool, state="ready").exists()
    assert ScalingEvent.objects.filter(pool=metal_pool, kind="lost").count() == 1
    assert report_in(secret).status_code == 200
    NodePool.objects.update(retry_at=None)
    reconcile_pool(metal_pool)
    assert Node.objects.filter(pool=metal_pool, state="ready").count() == 1


@pytest.mark.heavy
def test_machine_too_small_for_a_node_is_not_used(alice: Caller, metal_pool: NodePool) -> None:
    join(alice, memory_mib=8000)
    reconcile_pool(metal_pool, nodes_desired=1)
    assert not Node.objects.filter(pool=metal_pool).exists()
    metal_pool.refresh_from_db()
    reason = "1 free joined machine (0 large enough)"
    assert metal_pool.last_error == f"could not request 1 node (capacity): {reason}"


# --- ordered machines


@pytest.fixture
def ordered_node(metal_pool: NodePool) -> Node:
    return Node.objects.create(
        pool=metal_pool,
        name="metal-0",
        ordinal=0,
        state="booting",
        instance_id="i-1",
        client_token="t1",
        gpus=2,
        cpu_milli=8000,
        memory_mib=16384,
        since=timezone.now(),
    )


def test_provisioned_machine_joins_as_the_node_it_was_requested_for(
    ordered_node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = secrets.launch_request_secret("metal", "t1")
    body = {**MACHINE, "token": token, "instance_id": "i-2"}
    assert anonymous.post("node-pools/metal/join", body).status_code == 409, (
        "the node's instance is not known yet"
    )
    body |= {"instance_id": "i-1", "memory_mib": 15900}
    first = anonymous.post("node-pools/metal/join", body).json()["secret"]
    assert anonymous.post("node-pools/metal/join", body).json()["secret"] == first, (
        "the first response was lost"
    )
    ordered_node.refresh_from_db()
    assert ordered_node.joined_at is not None
    assert (ordered_node.memory_mib, ordered_node.devices) == (15900, MACHINE["devices"])
    assert ScalingEvent.objects.filter(kind="joined").count() == 1
    Node.objects.update(state="ready")
    assert anonymous.post("node-pools/metal/join", body).status_code == 401, (
        "a ready node cannot be joined again"
    )
    monkeypatch.setattr("pools.api.joining.load_wiring", Wired)
    instructions = {
        "node": "metal-0",
        "ordinal": 0,
        "instance": "i-1",
        "start": "start metal-0",
        "stop": "stop",
        "check": "",
        "update": "",
        "upgrade": None,
    }
    assert report_in(first).json() == {**instructions, "digest": "", "prepare": "", "secrets": {}}


def test_spot_interruption_reported_by_a_machine_is_recorded(ordered_node: Node) -> None:
    Node.objects.update(state="ready")
    secret = secrets.node_secret(ordered_node.pk)
    interruption_at = datetime(2030, 1, 1, 12, 2, tzinfo=UTC)
    report = {"interruption": {"reason": "EC2 takes it", "at": "2030-01-01T12:02:00Z"}}
    for _ in range(2):
        assert report_in(secret, report).status_code == 200
    ordered_node.refresh_from_db()
    assert (ordered_node.state, ordered_node.interruption_at) == ("draining", interruption_at)
    assert ScalingEvent.objects.filter(kind="interruption").count() == 1
    Node.objects.update(state="ended", ended_at=timezone.now())
    assert report_in(secret).status_code == 401


@pytest.mark.heavy
@pytest.mark.parametrize(("provider", "failures"), [("slurm", 1), ("aws", 0)])
def test_interruption_counts_as_a_failed_boot_only_on_slurm(
    ordered_node: Node, provider: str, failures: int
) -> None:
    NodePool.objects.update(provider=provider)
    reason = "the cluster is ending the allocation"
    report_in(secrets.node_secret(ordered_node.pk), {"interruption": {"reason": reason, "at": None}})
    ordered_node.refresh_from_db()
    assert ordered_node.state == "lost"
    assert ordered_node.pool.boot_failures == failures
    assert (reason in ordered_node.pool.boot_error) == bool(failures)


@pytest.mark.heavy
def test_unannounced_early_end_of_a_slurm_allocation_is_recorded(ordered_node: Node) -> None:
    NodePool.objects.update(provider="slurm")
    Node.objects.update(state="ready", instance_id="5-abcdef12")
    secret = secrets.node_secret(ordered_node.pk)
    report_in(secret, {"interruption": {"reason": "the cluster announces the end", "at": None}})
    ordered_node.refresh_from_db()
    assert (ordered_node.state, ordered_node.eviction_reason) == ("draining", "")
    report_in(secret, {"interruption": {"reason": ENDS_NOW, "at": None}})
    ordered_node.refresh_from_db()
    assert ordered_node.eviction_reason == "Slurm ended job 5 before its time limit"
    Node.objects.update(eviction_reason="", interruption_at=timezone.now())
    report_in(secret, {"interruption": {"reason": ENDS_NOW, "at": None}})
    ordered_node.refresh_from_db()
    assert ordered_node.eviction_reason == ""


class Wired:
    def __init__(self) -> None:
        self.instructions: Callable[[Node], Instructions] = start_and_stop

    def runtime_for(self, pool: NodePool) -> "Wired":
        return self


def start_and_stop(node: Node) -> Instructions:
    return Instructions(f"start {node.name}", "stop")


def test_repeated_launch_requests_get_identical_user_data(settings: Any) -> None:
    order = LaunchRequest("metal", 1, "t1", 0, Shape(1000, 1024))
    with pytest.raises(ProviderError, match="BERTH_PUBLIC_URL is not set"):
        user_data(order)
    settings.BERTH_PUBLIC_URL = "https://berth.example.org"
    text = user_data(order)
    assert text == user_data(order)
    assert secrets.launch_request_secret("metal", "t1") in text
    assert len(text.encode()) < 1024, "EC2 takes 16 KiB, certificates included"


@pytest.mark.heavy
@pytest.mark.django_db(transaction=True)
def test_agent_joins_and_runs_the_start_script(
    live_server: LiveServer, token: str, metal_pool: NodePool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = tmp_path / "done"
    wired = Wired()
    wired.instructions = lambda node: Instructions(f"echo $BERTH_NODE > {done}")
    monkeypatch.setattr("pools.api.joining.load_wiring", lambda: wired)

    def start_script_has_run() -> bool:
        reconcile_pool(metal_pool)
        return done.exists() and done.read_text() != ""

    running = start_agent(live_server.url, tmp_path / "state", token)
    try:
        poll_until(Machine.objects.exists)
        poll_until(start_script_has_run)
        assert done.read_text() == "metal-0\n"
        machine = Machine.objects.get()
        assert machine.cpu_milli >= 1000
        assert (tmp_path / "state/secret").stat().st_mode & 0o777 == 0o600
        Machine.objects.update(departed_at=timezone.now())
        assert running.wait(timeout=180) == REJECTED, "the agent of an unknown machine exits"
    finally:
        running.kill()
        running.wait()
