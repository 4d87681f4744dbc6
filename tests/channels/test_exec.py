"""Tests for commands that users run in pods with the Python client and a real server."""

import asyncio
import gc
import json
import threading
import time
from contextlib import suppress
from datetime import datetime, timedelta
from unittest.mock import Mock

import pytest
from asgiref.sync import sync_to_async
from django.conf import settings
from django.test import Client as Browser
from django.utils import timezone
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect as websocket
from websockets.typing import Origin

from berth.client.channels import OUTPUT, STATUS, command_request, encode_start
from berth.client.errors import Conflict, Forbidden, NotFound, NotSignedIn, Unreachable
from pools.runtimes.shim.channels import frames
from projects.actor import Actor
from projects.connections.watch import WATCHER
from projects.models import ApiToken, Audit, Membership, OpenChannel, Workload
from projects.services.people import accounts, tokens
from projects.services.workloads.channels import (
    USES,
    record_closed_channel,
    record_open_channel,
    record_opened_channel,
)
from scheduler.api.channels.consumer import POD_LOST, PROTOCOL_ERROR, ChannelConsumer
from scheduler.tasks import delete_expired
from tests.cast import Person
from tests.channels.conftest import Site
from tests.contracts.pods import poll_until


def test_command_runs_as_the_pods_user_with_its_variables_and_directory(site: Site) -> None:
    script = 'id -u; pwd; echo "$RANK $TOKEN"; cat; echo problem >&2; exit 3'
    with site.client(site.cast.dave) as client:
        result = client.workloads.exec(site.workload_id, ["sh", "-c", script], data=b"typed\n" * 100_000)
        user, directory, variables, *typed = result.output.decode().splitlines()
        assert (result.exit_code, result.errors) == (3, b"problem\n")
        assert typed == ["typed"] * 100_000
        assert (directory, variables) == (f"{site.runtime.root}/pods/{site.pod.pk}/work", "0 hush")
        expected = "1900000007" if site.runtime.isolation.level == "users" else user
        assert user == expected
        missing = client.workloads.exec(site.workload_id, ["no-such-program"])
        assert (missing.exit_code, missing.errors) == (127, b"no-such-program: No such file or directory")
        killed = client.workloads.exec(site.workload_id, ["sh", "-c", "kill -9 $$"], pod="worker-0")
        assert killed.exit_code == 128 + 9
    entries = poll_until(site.audit, lambda rows: len(rows) == 6)
    assert [entry[:2] for entry in entries[:2]] == [("dave", "open_shell"), ("dave", "close_shell")]
    assert entries[1][2] == {"pod": "worker-0", "run": 1, "seconds": entries[1][2]["seconds"], "exit_code": 3}  # type: ignore[index]
    assert "typed" not in str(entries), "the audit contains no contents"


def test_permission_error_names_the_missing_role(site: Site) -> None:
    def run(person: str, *scopes: str, pod: str | None = None) -> None:
        with site.client(getattr(site.cast, person), *scopes) as client:
            assert client.workloads.exec(site.workload_id, ["true"], pod=pod).exit_code == 0

    run("carol")
    run("alice")
    with pytest.raises(Forbidden, match="You need the project admin role in the project vision"):
        run("erin")
    with pytest.raises(Forbidden, match="lacks the write scope"):
        run("dave", "read")
    for person in ("grace", "frank"):
        with pytest.raises(NotFound):
            run(person)
    with pytest.raises(NotFound, match="Pods of the latest run, 1: worker-0"):
        run("dave", pod="worker-7")
    secret = site.secret(site.cast.dave)
    ApiToken.objects.update(revoked_at="2026-01-01T00:00:00Z")
    from berth.client import Client
    from berth.client.config import Settings

    with Client(settings=Settings(site.address, secret)) as client, pytest.raises(NotSignedIn):
        client.workloads.exec(site.workload_id, ["true"])
    Workload.objects.update(phase="pending")
    with pytest.raises(Conflict, match="train is pending"):
        run("dave")


def test_command_ends_when_the_role_or_token_is_revoked_or_the_pod_ends(site: Site) -> None:
    mark = f"4000.{time.monotonic_ns()}"

    def end_by(end: object, person: Person = site.cast.dave) -> str:
        with site.client(person) as client:
            channel = client.workloads.open_channel(
                site.workload_id, ["sh", "-c", f"setsid sleep {mark} & echo started; wait"]
            )
            with channel, pytest.raises((Forbidden, NotFound, NotSignedIn, Unreachable)) as error:
                assert channel.receive()[0] == OUTPUT
                assert site.processes(mark)
                end()  # type: ignore[operator]
                while channel.receive()[0] != STATUS:
                    pass
        poll_until(lambda: not site.processes(mark))
        return str(error.value)

    def revoke_token() -> None:
        tokens.revoke(actor=site.cast.dave, token=ApiToken.objects.latest("id"))

    assert "revoked" in end_by(revoke_token)
    role = Membership.objects.get(user=site.cast.dave.user)
    end_by(role.delete)  # the message depends on which of the user's permissions is noticed first
    Membership.objects.create(user=site.cast.dave.user, project=site.cast.vision, role="member")
    end_by(site.cast.carol.user.delete, site.cast.carol)
    bob = site.cast.bob
    end_by(lambda: accounts.deactivate(actor=site.cast.alice, user=bob.user), bob)
    assert "The pod has ended" in end_by(lambda: site.runtime.stop(str(site.pod.pk), 0))
    closed = poll_until(
        lambda: [row for row in site.audit() if row[1] == "close_shell"], lambda rows: len(rows) == 5
    )
    assert [row[0] for row in closed] == ["dave", "dave", "carol", "bob", "dave"]
    assert all(row[2]["exit_code"] is None for row in closed)  # type: ignore[index]


@pytest.mark.heavy
def test_client_that_stops_reading_does_not_fill_the_servers_memory(site: Site) -> None:
    mark = f"yes-{time.monotonic_ns()}"
    with site.client(site.cast.dave) as client:
        command = ["sh", "-c", f"echo {mark}; yes"]
        with client.workloads.open_channel(site.workload_id, command) as slow:
            received = 0
            while received < 4 * 2**20:  # each call returns credit for the bytes of the previous one
                received += len(slow.receive()[1])
            # The client now stops. Other commands are not affected, and the flood waits.
            for _ in range(3):
                assert client.workloads.exec(site.workload_id, ["echo", "fast"]).output == b"fast\n"
            assert site.processes(mark)
        poll_until(lambda: not site.processes(mark))


def test_only_berth_pages_can_run_commands_with_the_session_cookie(site: Site) -> None:
    browser = Browser()
    browser.force_login(site.cast.dave.user)
    cookie = {
        "Cookie": f"{settings.SESSION_COOKIE_NAME}={browser.cookies[settings.SESSION_COOKIE_NAME].value}"
    }
    url = f"{site.address.replace('http', 'ws')}/ws/workloads/{site.workload_id}/exec"

    def run(origin: str) -> dict[str, object]:
        with websocket(url, origin=Origin(origin), additional_headers=cookie) as connection:
            with suppress(ConnectionClosed):
                connection.send(encode_start(command_request(["true"])))
            while (frame := connection.recv(timeout=60))[0] != STATUS:
                pass
            return dict(json.loads(frame[1:]))

    assert run(site.address) == {"exit_code": 0}
    assert run("http://127.0.0.1:9")["status"] == 401, "a page of a pod that listens on the same host"


def test_terminal_size_in_the_request_is_applied(site: Site) -> None:
    script = 'until [ "$(stty size)" = "33 99" ]; do sleep 0.1; done'
    request = {"command": ["sh", "-c", script], "terminal": {"rows": 24, "columns": 80}}
    reader = frames.FrameReader(frames.FROM_POD)
    with site.runtime.open_channel(str(site.pod.pk)) as channel:
        channel.settimeout(60)
        channel.sendall(
            frames.encode_frame(frames.START, json.dumps(request).encode())
            + frames.encode_frame(frames.RESIZE, b'{"rows": 33, "columns": 99}')
        )
        received = []
        while data := channel.recv(65536):
            received += reader.feed(data)
    assert received[-1] == (frames.STATUS, b'{"exit_code": 0}')


def test_connection_ends_if_the_channel_cannot_be_opened(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(pod_id: str) -> None:
        raise LookupError(pod_id)

    monkeypatch.setattr(site.runtime, "open_channel", fail)
    with site.client(site.cast.dave) as client, pytest.raises(Unreachable):
        client.workloads.exec(site.workload_id, ["true"])
    poll_until(lambda: not WATCHER.count(site.cast.dave.user.pk))


@pytest.mark.heavy
def test_connection_is_released_after_a_request_that_cannot_be_parsed(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"{site.address.replace('http', 'ws')}/ws/workloads/{site.workload_id}/exec"
    headers = {"Authorization": f"Bearer {site.secret(site.cast.dave)}"}
    gc.collect()  # finalizers would fail while the nested request exhausts the stack

    def close_code(request: bytes) -> int:
        with websocket(url, origin=Origin(site.address), additional_headers=headers) as connection:
            connection.send(bytes((frames.START,)) + request)
            with pytest.raises(ConnectionClosed) as closed:
                while True:
                    connection.recv(timeout=60)
        poll_until(lambda: not WATCHER.count(site.cast.dave.user.pk))
        return closed.value.rcvd.code if closed.value.rcvd else 0

    assert close_code(b"[" * 60_000) == PROTOCOL_ERROR

    def fail(request: bytes) -> None:
        raise LookupError

    monkeypatch.setattr("scheduler.api.channels.consumer.parse_channel_use", fail)
    assert close_code(b"{}") != PROTOCOL_ERROR


@pytest.mark.parametrize("status", [b"[]", b"{", b"[" * 60_000, b'{"exit_code": "0"}', b'{"exit_code": {}}'])
async def test_pod_with_an_invalid_status_counts_as_lost(status: bytes) -> None:
    messages: list[bytes] = []

    async def send(*, bytes_data: bytes) -> None:
        messages.append(bytes_data)

    consumer, reader = ChannelConsumer(), asyncio.StreamReader()
    consumer.exit_code, consumer.send = None, send
    reader.feed_data(frames.encode_frame(STATUS, status))
    reader.feed_eof()
    await consumer._forward(reader)
    assert [json.loads(message[1:]) for message in messages] == [{"error": POD_LOST}]
    assert consumer.exit_code is None


async def test_end_of_a_channel_is_recorded_even_if_the_client_disconnects_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    is_busy, is_disconnected, recorded = threading.Event(), threading.Event(), []

    def check_permission() -> None:
        is_busy.set()
        assert is_disconnected.wait(60)

    async def send(*, bytes_data: bytes) -> None:
        checks.append(asyncio.create_task(sync_to_async(check_permission)()))
        await asyncio.to_thread(is_busy.wait, 60)

    def record_closed(*, channel: OpenChannel, at: datetime, exit_code: int | None) -> None:
        recorded.append(exit_code)

    checks: list[asyncio.Task[None]] = []
    monkeypatch.setattr("scheduler.api.channels.consumer.database_sync_to_async", sync_to_async)
    monkeypatch.setattr("scheduler.api.channels.consumer.record_opened_channel", lambda **_: OpenChannel())
    monkeypatch.setattr("scheduler.api.channels.consumer.record_closed_channel", record_closed)
    consumer, reader, writer = ChannelConsumer(), asyncio.StreamReader(), Mock()
    consumer.exit_code, consumer.send, consumer.opened, consumer.pod = None, send, asyncio.Event(), Mock()
    reader.feed_data(frames.encode_frame(STATUS, b'{"exit_code": 0}'))
    is_ending = asyncio.Event()
    writer.close = is_ending.set
    serving = asyncio.create_task(consumer._serve_request(reader, writer, Mock(), USES["command"]))
    await is_ending.wait()
    await asyncio.sleep(0)
    serving.cancel()
    for _ in range(5):  # the cancellation reaches the queued thread after some steps of the event loop
        await asyncio.sleep(0)
    is_disconnected.set()
    await asyncio.wait([serving, *checks])
    assert recorded == [0]


def test_audit_log_records_the_end_of_channels_after_their_web_process_was_killed(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened_at = timezone.now() - timedelta(minutes=20)
    abandoned = record_opened_channel(actor=site.cast.dave, pod=site.pod, use=USES["command"], at=opened_at)
    record_open_channel(abandoned, opened_at + timedelta(minutes=10))
    with site.client(site.cast.dave) as client:
        with client.workloads.open_channel(site.workload_id, ["sleep", "3600"]):
            poll_until(OpenChannel.objects.count, lambda count: count == 2)
            assert delete_expired()["interrupted channels"] == 1
            assert site.audit()[-1][1:] == (
                "close_shell", {"pod": "worker-0", "run": 1, "seconds": 600, "exit_code": None}
            )  # fmt: skip
            assert OpenChannel.objects.count() == 1, "the other command still runs"
            assert delete_expired()["interrupted channels"] == 0
        poll_until(lambda: not OpenChannel.objects.exists())
    record_closed_channel(channel=abandoned, at=timezone.now(), exit_code=0)
    assert [row[1] for row in site.audit()].count("close_shell") == 2, "each end is recorded once"

    channels = [
        record_opened_channel(actor=site.cast.dave, pod=site.pod, use=USES["command"], at=opened_at)
        for _ in range(3)
    ]

    def load_actor(user: None, name: str, request_id: str) -> Actor:
        record_open_channel(channels[1], timezone.now())
        return Actor(user, name, request_id=request_id)

    monkeypatch.setattr("projects.services.workloads.channels.BATCH", 1)
    monkeypatch.setattr("projects.services.workloads.channels.Actor", Mock(side_effect=load_actor))
    assert delete_expired()["interrupted channels"] == 2
    assert OpenChannel.objects.get() == channels[1], "its web process is slow, but still running"


def test_audit_log_records_the_end_of_channels_to_a_deleted_workload(site: Site) -> None:
    opened_at = timezone.now() - timedelta(minutes=20)
    record_opened_channel(actor=site.cast.dave, pod=site.pod, use=USES["command"], at=opened_at)
    before = Audit.objects.get(action="open_shell")
    Workload.objects.all().delete()
    assert delete_expired()["interrupted channels"] == 1
    after = Audit.objects.get(action="close_shell")
    same = ("actor", "object_type", "object_id", "object_name", "project_id", "department_id", "request_id")
    assert [getattr(after, name) for name in same] == [getattr(before, name) for name in same]
