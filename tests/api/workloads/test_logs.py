"""Tests for logs over REST: ranges, tails, streams and search."""

import asyncio
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from django.core.asgi import get_asgi_application
from django.utils import timezone

from berth.server.api.transport.asgi import RestRouter
from berth.server.wiring import Wiring
from pools.models import Node
from pools.runtimes.base import PodSpec
from projects.models import Pod, Workload
from projects.services import workloads
from projects.services.people import tokens
from tests.api.conftest import Caller
from tests.api.transport.asgi_client import AsgiClient
from tests.cast import Cast, make_cast, training
from tests.fakes.clock import FixedClock
from tests.fakes.runtime import FakeRuntime


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> FakeRuntime:
    fake = FakeRuntime()
    monkeypatch.setattr(
        "scheduler.api.logs.pod_log.load_wiring", lambda: Wiring(fake.clock, {}, {"fake": fake})
    )
    monkeypatch.setattr("scheduler.api.logs.endpoint.POLL_SECONDS", 0.01)
    return fake


def start_pod(cast: Cast, runtime: FakeRuntime, *, run: int = 1, index: int = 0, workload: Any = None) -> Pod:
    workload = workload or workloads.submit(actor=cast.dave, project=cast.vision, document=training())
    node, _ = Node.objects.get_or_create(
        pool=cast.pool, name="local-0", ordinal=0, state="ready", instance_id="i-0",
        gpus=2, cpu_milli=8000, memory_mib=16384, defaults={"since": timezone.now()},
    )  # fmt: skip
    pod = Pod.objects.create(
        workload=workload, role="big-worker", index=index, run=run, rank=index, node=node
    )
    order = PodSpec(str(pod.pk), pod.name, "w", ("true",), {}, None, "i-0", (), 5)
    runtime.start(order)
    return pod


def test_log_can_be_read_from_an_offset_or_from_its_end(
    cast: Cast, dave: Caller, runtime: FakeRuntime
) -> None:
    pod = start_pod(cast, runtime)
    runtime.write(str(pod.pk), b"one\ntwo\n<b>three</b>\n")
    path = f"workloads/{pod.workload_id}/logs"
    first = dave.get(path, limit=5)
    assert (first.content, first["X-Next-Offset"], first["X-Complete"]) == (b"one\nt", "5", "false")
    assert first["Content-Type"] == "text/plain; charset=utf-8"
    assert first["X-Content-Type-Options"] == "nosniff"
    assert dave.get(path, offset=5).content == b"wo\n<b>three</b>\n"
    assert dave.get(path, tail=2).content == b"two\n<b>three</b>\n"
    assert dave.get(path, tail=0).content == b""
    assert dave.get(path, tail=100).content == b"one\ntwo\n<b>three</b>\n"
    assert dave.get(path, tail=1, offset=5).status_code == 422
    runtime.end(str(pod.pk), exit_code=0)
    assert dave.get(path, limit=5)["X-Complete"] == "false"
    assert dave.get(path)["X-Complete"] == "true"


def test_pod_is_selected_by_its_name_and_run(cast: Cast, dave: Caller, runtime: FakeRuntime) -> None:
    first = start_pod(cast, runtime)
    Pod.objects.update(state="stopped", ended_at=timezone.now())
    second = start_pod(cast, runtime, run=2, workload=first.workload)
    other = start_pod(cast, runtime, run=2, index=1, workload=first.workload)
    for pod, text in ((first, b"old"), (second, b"new"), (other, b"other")):
        runtime.write(str(pod.pk), text)
    path = f"workloads/{first.workload_id}/logs"
    assert dave.get(path).content == b"new"
    assert dave.get(path, pod="big-worker-1").content == b"other"
    assert dave.get(path, run=1)["X-Run"] == "1"
    assert dave.get(path, pod="big-worker-0", run=1).content == b"old"
    detail = dave.get(path, pod="big-worker-7", run=1).json()["detail"]
    assert detail == (
        "There is no pod big-worker-7 of run 1. Pods of the latest run, 2: big-worker-0, big-worker-1."
    )
    for query in ({"pod": "big-worker-7"}, {"pod": "worker"}, {"pod": "worker-x"}, {"run": 9}):
        assert dave.get(path, **query).status_code == 404


@pytest.mark.heavy
def test_pending_workload_has_no_log(cast: Cast, dave: Caller, frank: Caller, runtime: FakeRuntime) -> None:
    workload = workloads.submit(actor=cast.dave, project=cast.vision, document=training())
    assert "not started" in dave.get(f"workloads/{workload.pk}/logs").json()["detail"]
    pod = start_pod(cast, runtime, workload=workload)
    runtime.write(str(pod.pk), b"secret")
    assert frank.get(f"workloads/{workload.pk}/logs").status_code == 404


def test_log_lines_begin_with_timestamps_if_requested(cast: Cast, dave: Caller, runtime: FakeRuntime) -> None:
    pod = start_pod(cast, runtime)
    runtime.clock = clock = FixedClock(datetime(2026, 1, 1, tzinfo=UTC))
    runtime.write(str(pod.pk), b"one\ntw")
    clock.advance(90)
    runtime.write(str(pod.pk), b"o\n\nthree\n")
    path, first, second = (
        f"workloads/{pod.workload_id}/logs",
        b"2026-01-01T00:00:00Z ",
        b"2026-01-01T00:01:30Z ",
    )
    stamped = first + b"one\n" + first + b"two\n" + second + b"\n" + second + b"three\n"
    answer = dave.get(path, timestamps="true")
    assert (answer.content, answer["X-Next-Offset"]) == (stamped, "15")
    assert dave.get(path, timestamps="true", tail=1).content == second + b"three\n"
    assert dave.get(path, timestamps="true", offset=4, limit=2).content == first + b"tw"
    assert (
        dave.get(path, timestamps="true", offset=6).content == b"o\n" + second + b"\n" + second + b"three\n"
    )
    runtime.end(str(pod.pk), exit_code=0)
    stream = dave.get(path, timestamps="true", follow="true", offset=5)
    assert b"".join(stream.streaming_content) == b"wo\n" + second + b"\n" + second + b"three\n"


def test_lines_without_a_known_time_begin_with_a_dash(cast: Cast, dave: Caller, runtime: FakeRuntime) -> None:
    pod = start_pod(cast, runtime)
    runtime.records_times = False
    runtime.write(str(pod.pk), b"one\ntwo\n")
    runtime.write(str(pod.pk), b"three\n")
    dash = b"-".ljust(21)
    answer = dave.get(f"workloads/{pod.workload_id}/logs", timestamps="true")
    assert answer.content == dash + b"one\n" + dash + b"two\n" + dash + b"three\n"


@pytest.mark.heavy
def test_log_request_returns_503_if_the_runtime_fails(
    cast: Cast, dave: Caller, runtime: FakeRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = start_pod(cast, runtime)

    def broken(*args: object) -> None:
        raise OSError("disk on fire")

    monkeypatch.setattr(runtime, "read_log", broken)
    assert dave.get(f"workloads/{pod.workload_id}/logs").status_code == 503


def test_followed_log_ends_when_the_pod_ends(cast: Cast, dave: Caller, runtime: FakeRuntime) -> None:
    pod = start_pod(cast, runtime)
    runtime.write(str(pod.pk), b"one\n")

    def write_and_end() -> None:
        runtime.write(str(pod.pk), b"two\n")
        runtime.end(str(pod.pk), exit_code=0)

    timer = threading.Timer(0.1, write_and_end)
    timer.start()
    answer = dave.get(f"workloads/{pod.workload_id}/logs", follow="true")
    assert b"".join(answer.streaming_content) == b"one\ntwo\n"
    timer.join()


@pytest.fixture
def running(transactional_db: None, runtime: FakeRuntime) -> Iterator[tuple[Pod, str]]:
    cast = make_cast()
    _, secret = tokens.issue(actor=cast.dave, name="t", scopes=["read"], expires_at=None)
    yield start_pod(cast, runtime), secret
    assert Workload.objects.count() == 1


@pytest.fixture(params=["pages", "rest"])
def app(request: pytest.FixtureRequest) -> Any:
    pages = get_asgi_application()
    return RestRouter(pages) if request.param == "rest" else pages


async def test_followed_log_streams_over_asgi_as_the_pod_writes(
    running: tuple[Pod, str], runtime: FakeRuntime, app: Any
) -> None:
    pod, secret = running
    wire = AsgiClient(f"/api/v1/workloads/{pod.workload_id}/logs", "follow=true", secret=secret)
    task = asyncio.create_task(app(wire.scope, wire.receive, wire.send))
    runtime.write(str(pod.pk), b"one\n")
    await wire.until(b"one\n")
    assert not task.done()
    runtime.write(str(pod.pk), b"two\n")
    await wire.until(b"two\n")
    runtime.end(str(pod.pk), exit_code=0)
    await asyncio.wait_for(task, 120)
    assert wire.body == b"one\ntwo\n"
    assert not wire.sent[-1].get("more_body", False)


async def test_followed_log_stops_when_the_client_disconnects(
    running: tuple[Pod, str], runtime: FakeRuntime, app: Any
) -> None:
    pod, secret = running
    wire = AsgiClient(f"/api/v1/workloads/{pod.workload_id}/logs", "follow=true", secret=secret)
    task = asyncio.create_task(app(wire.scope, wire.receive, wire.send))
    runtime.write(str(pod.pk), b"one\n")
    await wire.until(b"one\n")
    wire.disconnected.set()
    await asyncio.wait_for(task, 120)
    calls = len(runtime.calls)
    runtime.write(str(pod.pk), b"two\n")
    await asyncio.sleep(0.1)
    assert len(runtime.calls) == calls
    assert wire.body == b"one\n"


def test_log_search_returns_matching_lines_with_context(
    cast: Cast, dave: Caller, runtime: FakeRuntime
) -> None:
    pod = start_pod(cast, runtime)
    runtime.write(str(pod.pk), b"one\n<b>Two</b>\nthree\xff two\n\x00two\x1b[31m\n")
    path = f"workloads/{pod.workload_id}/logs/search"
    answer = dave.get(path, text="two", around=1).json()
    assert (answer["matches"], answer["pod"], answer["run"], answer["next"]) == (2, "big-worker-0", 1, None)
    assert answer["searched_bytes"] == answer["size"] == 36
    first, second = answer["items"]
    assert (first["line"], first["text"], first["before"]) == (3, "three\ufffd two", ["<b>Two</b>"])
    assert second["text"] == "\ufffdtwo\x1b[31m"
    assert dave.get(path, text="two", ignore_case="true").json()["matches"] == 3
    page = dave.get(path, text="two", limit=1).json()
    rest = dave.get(path, text="two", limit=1, cursor=page["next"]).json()
    assert [item["line"] for item in (*page["items"], *rest["items"])] == [3, 4]
    assert dave.get(path, text="absent").json()["items"] == []


@pytest.mark.parametrize(
    ("query", "field"),
    [({}, "text"), ({"text": ""}, "text"), ({"text": "x" * 201}, "text"),
     ({"text": "a", "around": 21}, "around"),
     ({"text": "a", "cursor": "x"}, "cursor"), ({"text": "a", "limit": 0}, "limit")],
)  # fmt: skip
def test_error_names_the_invalid_search_parameter(
    cast: Cast, dave: Caller, runtime: FakeRuntime, query: dict[str, Any], field: str
) -> None:
    pod = start_pod(cast, runtime)
    answer = dave.get(f"workloads/{pod.workload_id}/logs/search", **query)
    assert (answer.status_code, answer.json()["errors"][0]["path"]) == (422, field)
