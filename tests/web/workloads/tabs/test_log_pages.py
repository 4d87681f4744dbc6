"""Tests for logs on the workload page: plain text, search and streaming."""

import asyncio
import json
import re
from typing import Any, Self

import pytest
from asgiref.sync import sync_to_async
from asgiref.testing import ApplicationCommunicator
from channels.routing import URLRouter
from django.contrib.auth.models import AnonymousUser, User
from django.http import StreamingHttpResponse
from django.test import AsyncClient
from django.utils import timezone

from berth.server.asgi import websocket_urlpatterns
from berth.server.wiring import Wiring
from pools.runtimes.base import PodSpec
from projects.connections.sockets import SIGNED_OUT
from projects.models import Membership, Pod
from scheduler.api.logs.live import NOT_FOUND
from scheduler.reports.log_text import remove_control_sequences, render_as_terminal_line
from tests import factories as make
from tests.cast import Cast, make_cast
from tests.fakes.clock import FixedClock
from tests.fakes.runtime import FakeRuntime
from tests.support.session_cookies import session_cookie
from tests.web.conftest import SignIn

PATIENCE = 120.0
UNSAFE_TEXT = b"<script>alert('x')</script> \x1b[31mred\x1b[0m \x1b]0;owned\x07\x08\xe2\x80\xaeend\n"


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> FakeRuntime:
    fake = FakeRuntime()
    monkeypatch.setattr(
        "scheduler.api.logs.pod_log.load_wiring", lambda: Wiring(fake.clock, {}, {"fake": fake})
    )
    monkeypatch.setattr("scheduler.api.logs.live.IDLE_POLL_SECONDS", 0.01)
    return fake


def start_pod(cast: Cast, runtime: FakeRuntime, text: bytes) -> Pod:
    work = make.workload(cast.vision, "train", phase="running", run=2, started_at=make.ago(hours=1))
    pod = make.place(work, make.node(cast.pool), [0])
    runtime.start(PodSpec(str(pod.pk), pod.name, "w", ("true",), {}, None, "i-0", (), 5))
    runtime.write(str(pod.pk), text)
    return pod


def path(pod: Pod, what: str = "", **query: object) -> str:
    parameters = "".join(f"&{name}={value}" for name, value in query.items())
    return f"/workloads/{pod.workload_id}/log{what}?pod={pod.pk}{parameters}"


def test_log_response_is_plain_text_with_offsets(cast: Cast, sign_in: SignIn, runtime: FakeRuntime) -> None:
    pod = start_pod(cast, runtime, UNSAFE_TEXT * 3)
    client = sign_in("erin")
    answer = client.get(path(pod, tail=2))
    assert answer.content == UNSAFE_TEXT * 2
    assert answer.headers["Content-Type"].startswith("text/plain")
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    size = len(UNSAFE_TEXT)
    assert (answer.headers["X-Offset"], answer.headers["X-Next-Offset"], answer.headers["X-Complete"]) == (
        str(size), str(3 * size), "false",
    )  # fmt: skip
    assert answer.headers["X-Line"] == str(1 + UNSAFE_TEXT.count(b"\n"))
    assert client.get(path(pod, offset=0, limit=5)).content == UNSAFE_TEXT[:5]
    for query in ({"offset": "-1"}, {"offset": "x"}, {"tail": "%00"}, {"limit": "9" * 30}):
        assert client.get(path(pod, **query)).content == UNSAFE_TEXT * 3
    assert sign_in("grace").get(path(pod)).status_code == 404
    assert client.get(f"/workloads/{pod.workload_id}/log?pod=x").status_code == 404


def test_matching_log_lines_are_escaped(cast: Cast, sign_in: SignIn, runtime: FakeRuntime) -> None:
    pod = start_pod(cast, runtime, b"one\ntwo <b>\n" + UNSAFE_TEXT + b"four\n")
    client = sign_in("dave")
    text = client.get(path(pod, "/search", text="ALERT", ignore_case="on")).content.decode()
    assert "1 matching line in worker-0, run 2:" in text
    assert "&lt;script&gt;<mark>alert</mark>(&#x27;x&#x27;)&lt;/script&gt; red " in text
    assert "<script>" not in text
    assert not {"\x1b", "\x08", "\u202e"} & set(text)
    assert f'data-log-at="{len("one.two <b>.")}"' in text
    assert (
        'No matches<span class="long"> in worker-0'
        in client.get(path(pod, "/search", text="ALERT")).content.decode()
    )
    assert client.get(path(pod, "/search", text="")).content.strip() == b""
    assert sign_in("grace").get(path(pod, "/search", text="a")).status_code == 404


def test_listed_lines_show_when_they_were_written(cast: Cast, sign_in: SignIn, runtime: FakeRuntime) -> None:
    runtime.clock = clock = FixedClock(timezone.now())
    runtime.records_times = True
    pod = start_pod(cast, runtime, b"one\ntwo\n")
    first = int(clock.now().timestamp() * 1000)
    clock.advance(60)
    runtime.write(str(pod.pk), b"loss is nan\nfour\n")
    runtime.records_times = False
    runtime.write(str(pod.pk), b"five\n")
    answer = sign_in("dave").get(path(pod, "/search", text="nan")).content.decode()
    times = re.findall(r'data-at="(\d+)"', answer)
    assert times == [str(first + 60_000)]


def test_long_line_is_cut_to_begin_just_before_its_match(
    cast: Cast, sign_in: SignIn, runtime: FakeRuntime
) -> None:
    pod = start_pod(cast, runtime, b"a" * 500 + b" loss is nan again\n")
    answer = sign_in("dave").get(path(pod, "/search", text="nan")).content.decode()
    assert f"<pre>\u2026{'a' * 51} loss is <mark>nan</mark> again" in answer


@pytest.mark.heavy
def test_log_matches_are_paginated(cast: Cast, sign_in: SignIn, runtime: FakeRuntime) -> None:
    pod = start_pod(cast, runtime, b"".join(b"hit %d\n" % n for n in range(70)))
    client = sign_in("dave")
    seen, url = 0, path(pod, "/search", text="hit")
    for count in (30, 30, 10):
        answer = client.get(url)
        assert len(answer.context["hits"]) == count
        seen += count
        if answer.context["next"]:
            url = path(pod, "/search", text="hit", cursor=answer.context["next"])
    assert (seen, answer.context["next"]) == (70, None)


def test_downloaded_log_is_complete(cast: Cast, sign_in: SignIn, runtime: FakeRuntime) -> None:
    pod = start_pod(cast, runtime, UNSAFE_TEXT * 40_000)
    answer = sign_in("dave").get(path(pod, "/download"))
    assert answer.headers["Content-Disposition"] == 'attachment; filename="train-worker-0-run2.log"'
    assert isinstance(answer, StreamingHttpResponse)
    pieces = list(answer)
    assert len(pieces) > 1
    assert b"".join(pieces) == UNSAFE_TEXT * 40_000


@pytest.mark.heavy
def test_pods_of_the_current_run_are_listed_first(cast: Cast, sign_in: SignIn, runtime: FakeRuntime) -> None:
    pod = start_pod(cast, runtime, b"")
    before = Pod.objects.create(
        workload=pod.workload, role="worker", index=0, run=1, node=pod.node, state="stopped",
        ended_at=timezone.now(),
    )  # fmt: skip
    for address in (f"/workloads/{pod.workload_id}", f"/workloads/{pod.workload_id}/log/pods"):
        text = sign_in("dave").get(address).content.decode()
        earlier = text.index(f'value="{before.pk}" data-ended>worker-0, run 1')
        assert text.index(f'value="{pod.pk}">worker-0<') < earlier


@pytest.mark.heavy
def test_pod_details_show_limits_with_source_and_peak(
    cast: Cast, sign_in: SignIn, runtime: FakeRuntime
) -> None:
    pod = start_pod(cast, runtime, b"")
    limits = {"memory_mib": 512, "memory_source": "request", "cpu_milli": 1500, "cpu_source": "document"}
    Pod.objects.filter(pk=pod.pk).update(limits=limits, memory_peak_mib=310)
    text = sign_in("dave").get(f"/workloads/{pod.workload_id}").content.decode()
    assert '512 MiB memory <span class="sub">as requested, peak 310 MiB</span>' in text
    assert '1.5 CPU <span class="sub">as declared</span>' in text


def test_terminal_escapes_are_stripped() -> None:
    assert remove_control_sequences(UNSAFE_TEXT.rstrip()) == "<script>alert('x')</script> red \ufffd\ufffdend"
    assert remove_control_sequences("Grüße\t你好\r".encode()) == "Grüße\t你好"
    assert remove_control_sequences(b"\xff\x00\x1b") == "\ufffd\ufffd"


def test_match_in_a_replaced_progress_line_is_shown() -> None:
    assert render_as_terminal_line(b"1%\r\x1b[32m2%\x1b[0m\r3%\r") == "3%"
    assert render_as_terminal_line(b"1%\r2%\r3%", re.compile("2%")) == "2%"


# --- streaming


class LogSocket(ApplicationCommunicator):
    """The browser side of a WebSocket."""

    def __init__(self, user: User | AnonymousUser, pod: Pod, offset: object = 0) -> None:
        self.user = user
        self.scope: dict[str, Any] = {
            "type": "websocket", "path": f"/ws/workloads/{pod.workload_id}/log", "headers": [],
            "query_string": f"pod={pod.pk}&offset={offset}".encode(),
        }  # fmt: skip
        super().__init__(URLRouter(websocket_urlpatterns), self.scope)

    async def begin(self) -> Self:
        cookie = await sync_to_async(session_cookie)(self.user)
        self.scope["headers"].append((b"cookie", cookie.encode()))
        await self.send_input({"type": "websocket.connect"})
        assert (await self.receive_output(PATIENCE))["type"] == "websocket.accept"
        return self

    async def receive(self) -> dict[str, Any]:
        answer = await self.receive_output(PATIENCE)
        return json.loads(answer["text"]) if "text" in answer else {"closed": answer.get("code", 1000)}

    async def end(self) -> None:
        await self.send_input({"type": "websocket.disconnect", "code": 1000})
        await self.wait(PATIENCE)


@pytest.fixture
def running(transactional_db: None, runtime: FakeRuntime) -> tuple[Cast, Pod]:
    cast = make_cast()
    return cast, start_pod(cast, runtime, "one ü\n".encode())


async def test_log_is_streamed_as_it_is_written(running: tuple[Cast, Pod], runtime: FakeRuntime) -> None:
    cast, pod = running
    socket = await LogSocket(cast.erin.user, pod).begin()
    assert await socket.receive() == {"text": "one ü\n", "begin": 0, "next": 7, "complete": False}
    runtime.write(str(pod.pk), b"half \xc3")
    assert (await socket.receive())["text"] == "half ", "a character split over two writes stays whole"
    runtime.write(str(pod.pk), b"\xbc\n")
    assert (await socket.receive())["text"] == "ü\n"
    runtime.end(str(pod.pk), exit_code=0)
    await asyncio.sleep(0)
    last = await socket.receive()
    assert (last["text"], last["complete"]) == ("", True)
    assert "closed" in await socket.receive()
    await socket.end()


async def test_log_stream_resumes_at_an_offset(running: tuple[Cast, Pod], runtime: FakeRuntime) -> None:
    cast, pod = running
    socket = await LogSocket(cast.dave.user, pod, offset=4).begin()
    assert (await socket.receive())["text"] == "ü\n"
    await socket.end()
    looked = len(runtime.calls)
    runtime.write(str(pod.pk), b"two\n")
    await asyncio.sleep(0.05)
    assert len(runtime.calls) == looked, "a closed stream reads nothing more"


@pytest.mark.parametrize("offset", ["-1", "x", "9" * 40])
async def test_log_stream_with_an_invalid_offset_starts_at_the_beginning(
    running: tuple[Cast, Pod], offset: str
) -> None:
    cast, pod = running
    socket = await LogSocket(cast.dave.user, pod, offset=offset).begin()
    assert (await socket.receive())["begin"] == 0
    await socket.end()


async def test_log_stream_is_closed_for_users_without_access(running: tuple[Cast, Pod]) -> None:
    cast, pod = running
    for user, code in ((cast.grace.user, NOT_FOUND), (AnonymousUser(), SIGNED_OUT)):
        socket = await LogSocket(user, pod).begin()
        assert await socket.receive() == {"closed": code}
        await socket.end()


async def test_revoked_role_ends_the_log_stream(running: tuple[Cast, Pod]) -> None:
    cast, pod = running
    socket = await LogSocket(cast.dave.user, pod).begin()
    assert (await socket.receive())["text"]
    await Membership.objects.filter(user=cast.dave.user).adelete()
    assert await socket.receive() == {"closed": NOT_FOUND}
    await socket.end()


async def test_log_download_streams_under_asgi(running: tuple[Cast, Pod], runtime: FakeRuntime) -> None:
    cast, pod = running
    client = AsyncClient()
    await client.aforce_login(cast.dave.user)
    answer = await client.get(path(pod, "/download"))
    assert isinstance(answer, StreamingHttpResponse)
    assert b"".join([piece async for piece in answer]) == "one ü\n".encode()


def test_error_lines_of_the_whole_log_are_counted(cast: Cast, sign_in: SignIn, runtime: FakeRuntime) -> None:
    pod = start_pod(cast, runtime, b"ERROR one\n" + b"step\n" * 5000 + b"RuntimeError: two\nstep\n")
    answer = sign_in("erin").get(path(pod, "/errors"))
    assert json.loads(answer.content) == {"count": 2, "is_complete": True}
    assert sign_in("grace").get(path(pod, "/errors")).status_code == 404
