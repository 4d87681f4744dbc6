"""Tests for the session endpoints."""

import asyncio
import uuid
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.utils import timezone

from berth.client.sessions.options import build_options
from berth.core.frames import CONTENT_TYPE, pack_frames, unpack_frames
from berth.server.api.transport.asgi import RestRouter
from pools.joining import secrets
from pools.models import Node, NodePool
from pools.services.secrets import SecretContent
from projects.models import Phase, Pod, Workload
from projects.services.people import tokens
from projects.services.secrets import set_project_secret
from tests.api.conftest import Caller
from tests.api.transport.asgi_client import AsgiClient
from tests.cast import Cast, make_cast

BODY = {
    "name": "play", "project": "vision", "pools": ["local"], "node": {"replicas": 2, "gpu": 1},
    "python": "3.11.4", "cloudpickle": "3.1.0", "setup": "c2VjcmV0",
}  # fmt: skip
HELLO_BODY = {"python": "3.11.9", "cloudpickle": "3.1.2", "ready": True}


def frames(*calls: tuple[dict[str, Any], bytes]) -> tuple[str, bytes]:
    return CONTENT_TYPE, pack_frames(calls)


def open_session(cast: Cast, dave: Caller) -> str:
    session_id: str = dave.post("sessions", BODY).json()["id"]
    now = timezone.now()
    Workload.objects.filter(pk=session_id).update(phase=Phase.RUNNING, run=1, pool=cast.pool, started_at=now)
    node = Node.objects.create(
        pool=cast.pool, name="local-0", ordinal=0, state="ready", instance_id="i-0", gpus=2, cpu_milli=8000,
        memory_mib=16384, since=now,
    )  # fmt: skip
    for rank in (0, 1):
        Pod.objects.create(
            workload_id=session_id, role="worker", index=rank, rank=rank, run=1, node=node, state="running"
        )
    return session_id


@pytest.fixture
def running_session(cast: Cast, dave: Caller) -> str:
    return open_session(cast, dave)


def worker(session: str, node: int = 0) -> Caller:
    return Caller(secrets.pod_secret(str(Pod.objects.get(workload_id=session, rank=node).pk)))


@pytest.mark.heavy
def test_session_runs_in_the_requested_image(dave: Caller, cast: Cast) -> None:
    NodePool.objects.filter(pk=cast.pool.pk).update(runtime="local")
    image = {"image": "ghcr.io/org/python:3.11", "image_pull_policy": "always"}
    created = dave.post("sessions", {**BODY, **image})
    assert created.status_code == 201
    spec = Workload.objects.get(pk=created.json()["id"]).spec
    assert {name: spec[name] for name in image} == image
    rejected = dave.post("sessions", {**BODY, "name": "bad", "image": "Not An Image"})
    assert (rejected.status_code, rejected.json()["errors"][0]["path"]) == (422, "image")


def test_call_runs_on_a_worker_and_returns_its_result(dave: Caller, running_session: str) -> None:
    ours = worker(running_session)
    welcome = ours.post("workers/hello", HELLO_BODY).json()
    assert (welcome["error"], welcome["executor"], welcome["setup"]) == ("", "process", "c2VjcmV0")
    assert [node["node"] for node in dave.get(f"sessions/{running_session}").json()["nodes"]] == [0]
    key = str(uuid.uuid4())
    assert (
        dave.post(f"sessions/{running_session}/calls", frames(({"key": key}, b"closed"))).status_code == 201
    )
    [(first, _), (order, payload)] = unpack_frames(ours.get("workers/orders").content)
    assert (first, payload) == ({"leave": False, "at_once": False}, b"closed")
    done = {"number": order["number"], "outcome": "value", "error": {}}
    answer = ours.post("workers/results", frames((done, b"result")))
    assert unpack_frames(answer.content) == [(first, b"")]
    [(words, result)] = unpack_frames(dave.get(f"sessions/{running_session}/results").content)
    assert (words["key"], words["outcome"], words["node"], result) == (key, "value", 0, b"result")
    assert unpack_frames(dave.get(f"sessions/{running_session}/results", after=1).content) == []


@pytest.mark.heavy
def test_error_after_the_response_has_started_is_logged(
    dave: Caller, running_session: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    empty_looks = 1

    def fetch_ended_calls(**options: Any) -> list[Any]:
        nonlocal empty_looks
        if not empty_looks:
            raise ZeroDivisionError("in the middle")
        empty_looks -= 1
        return []

    monkeypatch.setattr("projects.services.sessions.calls.fetch_ended_calls", fetch_ended_calls)
    answer = dave.get(f"sessions/{running_session}/results", wait=5)
    [(words, _)] = unpack_frames(b"".join(answer.streaming_content))
    assert words["problem"]["status"] == 500
    assert "in the middle" not in str(words) and "in the middle" in caplog.text


def test_worker_can_access_only_its_own_session(dave: Caller, carol: Caller, running_session: str) -> None:
    worker(running_session).post("workers/hello", HELLO_BODY)
    dave.post(f"sessions/{running_session}/calls", frames(({"key": str(uuid.uuid4())}, b"closed")))
    other = worker(running_session, node=1)
    other.post("workers/hello", HELLO_BODY)
    [(_, nothing), *orders] = unpack_frames(other.get("workers/orders").content)
    assert (nothing, orders) == (b"", [])
    for path in (f"sessions/{running_session}", f"sessions/{running_session}/results", "workloads"):
        assert other.get(path).status_code == 401


@pytest.mark.every_case
@pytest.mark.parametrize("path", ["hello", "orders", "results", "leave"])
def test_worker_endpoints_require_a_live_pods_secret(db: None, path: str) -> None:
    method = "GET" if path == "orders" else "POST"
    body = frames(({"number": 1, "outcome": "value"}, b"")) if path == "results" else HELLO_BODY
    for secret in (
        "",
        "pod.x.y",
        "berth_nothing",
        secrets.pod_secret(str(uuid.uuid4())),
        secrets.node_secret(1),
    ):
        answer = Caller(secret)(method, f"workers/{path}", None if method == "GET" else body)
        assert answer.status_code == 401


def test_worker_endpoints_reject_user_tokens(dave: Caller, running_session: str) -> None:
    assert dave.get("workers/orders").status_code == 401


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"node": {"min": 3, "max": 2}}, "node.min"),
        ({"node": {"gpu": -1}}, "node.gpu"),
        ({"pools": ["cloud"]}, "pools[0]"),
        ({"executor": "fibre"}, "executor"),
        ({"slots": 0}, "slots"),
        ({"idle_timeout": 1}, "idle_timeout"),
        ({"python": "three"}, "python"),
        ({"setup": "***"}, "setup"),
        ({"command": "rm -rf /"}, "command"),
        ({"env": {"1": "x"}}, "env"),
    ],
)
def test_error_names_the_invalid_session_field(dave: Caller, change: dict[str, Any], path: str) -> None:
    answer = dave.post("sessions", {**BODY, **change})
    assert answer.status_code == 422
    assert any(error["path"].startswith(path) for error in answer.json()["errors"]), answer.json()


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ((CONTENT_TYPE, b""), 422), ((CONTENT_TYPE, b"\0\0\0\x02[]x"), 400), (frames(), 422),
        (frames(({"key": "no"}, b"")), 422), (frames(({}, b"")), 422),
        (frames(({"key": str(uuid.uuid4()), "node": 7}, b"")), 422), ({"calls": []}, 415),
        (frames(*[({"key": "00000000-0000-4000-8000-000000000001"}, b"")] * 2), 422),
    ],
)  # fmt: skip
def test_malformed_calls_are_rejected(dave: Caller, running_session: str, body: Any, status: int) -> None:
    assert dave.post(f"sessions/{running_session}/calls", body).status_code == status


@pytest.mark.heavy
def test_broadcast_rejected_because_no_node_is_ready_can_be_retried(
    dave: Caller, running_session: str
) -> None:
    call = frames(({"key": str(uuid.uuid4()), "everywhere": True}, b"closed"))
    rejected = dave.post(f"sessions/{running_session}/calls", call)
    assert (rejected.status_code, rejected.json()["reason"]) == (409, "no-node")
    worker(running_session).post("workers/hello", HELLO_BODY)
    [broadcast] = dave.post(f"sessions/{running_session}/calls", call).json()["broadcasts"]
    assert [node["node"] for node in broadcast["nodes"]] == [0]


@pytest.mark.heavy
def test_nonexistent_results_cannot_be_acknowledged(dave: Caller, running_session: str) -> None:
    assert dave.get(f"sessions/{running_session}/results", after=1).status_code == 422


def test_pod_secret_is_never_returned(dave: Caller, alice: Caller, running_session: str) -> None:
    pod = Pod.objects.get(workload_id=running_session, rank=0)
    signature = secrets.pod_secret(str(pod.pk)).rpartition(".")[2]
    for path in (
        f"workloads/{running_session}",
        f"workloads/{running_session}/pods",
        f"workloads/{running_session}/events",
        f"sessions/{running_session}",
        "audit",
    ):
        assert signature not in alice.get(path).content.decode()


@pytest.mark.django_db(transaction=True)
async def test_long_poll_returns_when_a_call_arrives() -> None:
    def set_up() -> tuple[str, Caller, Caller]:
        cast = make_cast()
        _, secret = tokens.issue(actor=cast.dave, name="t", scopes=["read", "write"], expires_at=None)
        session = open_session(cast, Caller(secret))
        ours = worker(session)
        ours.post("workers/hello", HELLO_BODY)
        return session, Caller(secret), ours

    session, dave, ours = await sync_to_async(set_up)()
    wire = AsgiClient("/api/v1/workers/orders", "wait=20", secret=ours.secret)
    request = asyncio.create_task(RestRouter(None)(wire.scope, wire.receive, wire.send))
    await asyncio.sleep(0.3)
    assert not wire.body
    call = frames(({"key": str(uuid.uuid4())}, b"closed"))
    await sync_to_async(dave.post)(f"sessions/{session}/calls", call)
    await asyncio.wait_for(request, 120)
    assert unpack_frames(wire.body)[1][1] == b"closed"


@pytest.mark.heavy
def test_session_refers_to_secrets_by_name(cast: Cast, dave: Caller) -> None:
    uses = build_options("local", 1, "vision", {"secrets": [{"name": "token", "env": "TOKEN"}]}).body()
    body = {**BODY, "secrets": uses["secrets"]}
    rejected = dave.post("sessions", body)
    assert (rejected.status_code, rejected.json()["errors"][0]["path"]) == (422, "secrets[0].name")
    content, now = SecretContent("swordfish"), timezone.now()
    set_project_secret(actor=cast.carol, project=cast.vision, name="token", content=content, at=now)
    assert dave.post("sessions", body).status_code == 201
    assert Workload.objects.get().spec["secrets"] == [{"name": "token", "env": "TOKEN"}]
